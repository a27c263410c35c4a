"""The tests that mutants are run against, and how."""
import dataclasses
import os
import resource
import signal
import subprocess
import tempfile
import time

LIBRARIES = ("qkvfuse_objects", "qkvfuse_aclnn_objects")


@dataclasses.dataclass(frozen=True)
class Selection:
    """Tests of one program."""

    program: str  # below the build's tests
    pattern: str = "*"

    @property
    def name(self):
        return os.path.basename(self.program)


# What all mutants are run against: every part of the suite, but where a part repeats itself for
# minutes, some of it, so that what is measured is a lower bound. Left out: what runs no code of src
# (reference_test, lint, surface), starts other programs (cli, package) or reads tables that are not
# always there (capi_upstream_rows_test).
SELECTIONS = (
    Selection("core/core_test"),
    Selection("contract/contract_test"),
    Selection("bind/bind_test"),
    Selection("layout_test"),
    Selection("log_test"),
    Selection("settings_test"),
    Selection("allocation_test"),
    Selection("environment_test"),
    Selection("quantise_test"),
    Selection("conversion_test"),
    Selection("accuracy_test"),
    Selection("cases_test"),
    Selection("operator_test", "-*ManyValues*"),
    Selection("shape_test"),
    Selection("stride_test"),
    Selection("random_test", "-*/1?"),
    Selection("stream_test", "*/0:*/2:*/3"),
    Selection("consistency_test"),
    Selection("large_cache_test"),
    Selection("oversubscription_test"),
    Selection("guard_test", "*qnr_bf16_paged:*qnr_fp16_pa_nz:*drq16_bf16_pa_nz:*drq32_fp16_cont*"),
    Selection("faults/faults_test", "-C63Kind/*"),
    Selection("faults/faults_door_test"),
    Selection("capi/capi_runtime_test"),
    Selection("capi/capi_meta_test"),
    Selection("capi/capi_life_cycle_test"),
    Selection("capi/capi_views_test"),
    Selection("capi/capi_contract_qnr_test"),
    Selection("capi/capi_contract_drq_test"),
)


def programs():
    """The targets of the build that hold the selections' programs."""
    return sorted({os.path.basename(selection.program) for selection in SELECTIONS})


@dataclasses.dataclass
class Outcome:
    passed: bool
    why: str  # the test that failed, a signal or the time limit
    seconds: float


def restrict():
    """For a child: no core files, and the first to go when memory is short."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass  # not Linux, or not allowed


def wait(process, limit):
    """The exit status, None after the time limit; no process of the group is left."""
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def first_failure(output):
    for line in output.splitlines():
        if "[  FAILED  ] " in line:
            return line.split("[  FAILED  ] ")[1].split(",")[0].split(" (")[0]
    return ""


def run(build, selection, limit, environment):
    """Runs a selection's tests up to the first that fails."""
    command = [build / "tests" / selection.program, "--gtest_fail_fast", "--gtest_color=no",
               f"--gtest_filter={selection.pattern}"]
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(
            command, env={**os.environ, "GOMP_SPINCOUNT": "0", **environment},
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=build,
            start_new_session=True, preexec_fn=restrict)
        status = wait(process, limit)
        output.seek(0)
        failure = first_failure(output.read())
    seconds = time.monotonic() - begin
    if status is None:
        return Outcome(False, "time limit", seconds)
    if status < 0:
        return Outcome(False, signal.Signals(-status).name, seconds)
    return Outcome(status == 0, failure or f"exit status {status}", seconds)


@dataclasses.dataclass
class Measured:
    """A selection of a build without an active mutant."""

    selection: Selection
    seconds: float
    reached: set  # numbers of mutants

    @property
    def limit(self):
        """A mutant that makes tests that much slower counts as hanging."""
        return 5 + 5 * self.seconds


def measure(build, selection, limit=1800):
    """Runs a selection without a mutant; RuntimeError where it fails."""
    with tempfile.NamedTemporaryFile("r") as file:
        outcome = run(build, selection, limit, {"QKVFUSE_REACHED": file.name})
        if not outcome.passed:
            raise RuntimeError(f"{selection.name} fails without a mutant: {outcome.why}")
        return Measured(selection, outcome.seconds, {int(line) for line in file.read().split()})
