#!/usr/bin/env python3
"""Writes sbom.spdx.json (SPDX 2.3): the project, what its libraries and its command line run with,
and what building and testing need, from tools/packages.txt and the version in the header.

Usage: tools/write_sbom.py [--check]   (--check only fails when the file is not current)
"""
import argparse
import datetime
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SBOM = ROOT / "sbom.spdx.json"
LIBRARY = "SPDXRef-qkvfuse"
COMMAND_LINE = "SPDXRef-qkvfuse-command-line"
RECORDING = "SPDXRef-gemma3-270m-activations"
GCC_LICENSE = "GPL-3.0-or-later WITH GCC-exception-3.1"

# What programs load beside the libraries: Debian's name -> licence, who needs it.
RUNTIME = {
    "libhwy1": ("Apache-2.0", LIBRARY),
    "libstdc++6": (GCC_LICENSE, LIBRARY),
    "libgomp1": (GCC_LICENSE, LIBRARY),
    "libc6": ("LGPL-2.1-or-later", LIBRARY),
    "libfmt9": ("MIT", COMMAND_LINE),
}
# Licences of packages whose code ends up in what is built.
COMPILED_IN = {
    "libhwy-dev": "Apache-2.0",
    "libcli11-dev": "BSD-3-Clause",
    "libfmt-dev": "MIT",
    "nlohmann-json3-dev": "MIT",
}
# Group of tools/packages.txt -> relationship, to what.
GROUPS = {
    "library": ("BUILD_DEPENDENCY_OF", LIBRARY),
    "tools": ("BUILD_DEPENDENCY_OF", COMMAND_LINE),
    "tests": ("TEST_DEPENDENCY_OF", LIBRARY),
}
OTHER_GROUPS = ("DEV_TOOL_OF", LIBRARY)


def project_version():
    header = (ROOT / "include/qkvfuse/runtime.hpp").read_text(encoding="utf-8")
    return ".".join(re.findall(r"define QKVFUSE_VERSION_\w+ (\d+)", header))


def package_groups():
    """Group -> Debian packages, as tools/packages.txt has them."""
    text = (ROOT / "tools/packages.txt").read_text(encoding="utf-8")
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {words[0]: words[1:] for words in lines}


def identifier(name):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name.replace("+", "x"))


def own_package(spdx_id, name, version, license_name="Apache-2.0"):
    return {
        "SPDXID": spdx_id,
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": license_name,
        "licenseDeclared": license_name,
        "copyrightText": "NOASSERTION",
    }


def debian_package(debian_name, license_name):
    name, _, architecture = debian_name.partition(":")
    locator = f"pkg:deb/debian/{name.replace('+', '%2B')}?distro=bookworm"
    if architecture:
        locator = locator.replace("?", f"?arch={architecture}&")
    return {
        "SPDXID": identifier(debian_name),
        "name": debian_name,
        "supplier": "Organization: Debian",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": license_name,
        "copyrightText": "NOASSERTION",
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": locator,
            }
        ],
    }


def relation(element, kind, other):
    return {"spdxElementId": element, "relationshipType": kind, "relatedSpdxElement": other}


def build(created):
    version = project_version()
    packages = [
        own_package(LIBRARY, "qkvfuse", version),
        own_package(COMMAND_LINE, "qkvfuse command line", version),
        # cases/recorded/NOTICE: the Gemma Terms of Use, which SPDX has no identifier for.
        own_package(RECORDING, "activations of Gemma 3 270M", version, "LicenseRef-Gemma"),
    ]
    relations = [
        relation("SPDXRef-DOCUMENT", "DESCRIBES", LIBRARY),
        relation("SPDXRef-DOCUMENT", "DESCRIBES", COMMAND_LINE),
        relation(COMMAND_LINE, "DEPENDS_ON", LIBRARY),
        relation(COMMAND_LINE, "CONTAINS", RECORDING),
    ]
    for name, (license_name, user) in RUNTIME.items():
        packages.append(debian_package(name, license_name))
        relations.append(relation(identifier(name), "RUNTIME_DEPENDENCY_OF", user))
    known = set()
    for group, names in package_groups().items():
        for name in names:
            if name not in known:
                packages.append(debian_package(name, COMPILED_IN.get(name, "NOASSERTION")))
                known.add(name)
            edge = relation(identifier(name), *GROUPS.get(group, OTHER_GROUPS))
            if edge not in relations:
                relations.append(edge)
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"qkvfuse-{version}",
        "documentNamespace": f"https://spdx.org/spdxdocs/qkvfuse-{version}",
        "creationInfo": {"created": created, "creators": ["Tool: tools/write_sbom.py"]},
        "packages": packages,
        "relationships": relations,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    recorded = json.loads(SBOM.read_text(encoding="utf-8")) if SBOM.exists() else None
    # The date of a file that says the same stays.
    if recorded and build(recorded["creationInfo"]["created"]) == recorded:
        return 0
    if check:
        print(f"{SBOM.name} is not current; run tools/write_sbom.py")
        return 1
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    SBOM.write_text(json.dumps(build(now), indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
