# Front end of the CMake build: each target installs the Debian packages that it needs and that are
# missing (tools/packages.txt), then configures, builds and runs in build/<preset>.
SHELL := bash
PREFIX ?= /usr/local
SECONDS ?= 600
PACKAGES := tools/install_packages.sh
THREAD_TESTS := consistency_test property_test shape_test environment_test capi_addresses_test \
  capi_life_cycle_test capi_runtime_test faults_door_test
# Without the branches that compilers make: of exceptions, and of guards of static objects.
COVERED := --root . --filter 'src/(ops|plan|capi|models)/' --exclude-throw-branches \
  --exclude-unreachable-branches --exclude-branches-by-pattern '.*static auto& .*'
FORMATTED := include src reference cases tests tools examples bench python

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: release ## Run both operators on real model shapes, checked and timed
	build/release/tools/cli/qkvfuse demo --svg build/demo-pa_nz.svg

.PHONY: bench
bench: release ## Time the default benchmark rows; writes build/bench.json and build/bench.svg
	build/release/tools/cli/qkvfuse bench --save build/bench.json --plot build/bench.svg

.PHONY: test
test: ## Build with g++ and run the tests, those of the Python package too
	@$(PACKAGES) library tools tests python
	@tools/run_tests.sh dev --label-exclude nightly
	@tools/run_python_tests.sh
	@python3 tools/count_tests.py build/dev/tests.xml build/python/tests.xml

.PHONY: python-test
python-test: ## Install the Python package into build/python/venv and run its tests
	@$(PACKAGES) library python
	@tools/run_python_tests.sh

.PHONY: build
build: ## Build everything with g++, with asserts and -Werror
	@$(PACKAGES) library tools tests
	cmake --preset dev
	cmake --build --preset dev

.PHONY: release
release: ## Build the libraries and the command line as users install them
	@$(PACKAGES) library tools
	cmake --preset release
	cmake --build --preset release

.PHONY: install
install: ## Install headers, libraries and command line below PREFIX (/usr/local)
	@$(PACKAGES) library tools
	cmake --preset release -DCMAKE_INSTALL_PREFIX=$(abspath $(PREFIX))
	cmake --build --preset release
	cmake --install build/release

.PHONY: lint
lint: ## Check format, layers, text rules and links of the sources
	@$(PACKAGES) lint
	tools/lint/list_sources.sh $(FORMATTED) | xargs clang-format-14 --dry-run -Werror
	python3 tools/check_layers.py
	python3 tools/lint/check_text.py
	python3 tools/lint/check_links.py

.PHONY: format
format: ## Format the C and C++ sources in place
	@$(PACKAGES) lint
	tools/lint/list_sources.sh $(FORMATTED) | xargs clang-format-14 -i

.PHONY: tidy
tidy: ## Run clang-tidy over the library and the tools
	@$(PACKAGES) library tools tests clang tidy
	cmake --preset clang
	run-clang-tidy-14 -quiet -p build/clang '/(src|reference|cases|tools|bench)/(?!gbench).*\.cc$$'

.PHONY: clang
clang: ## Build with clang and run the tests
	@$(PACKAGES) library tools tests clang
	@tools/run_tests.sh clang --label-exclude nightly

.PHONY: asan
asan: ## Run the tests and the fuzz targets with clang's address and undefined-behaviour sanitizers
	@$(PACKAGES) library tools tests clang
	@tools/run_tests.sh asan --label-exclude nightly

.PHONY: tsan
tsan: ## Run the tests of threads under clang's ThreadSanitizer
	@$(PACKAGES) library tools tests clang
	@tools/run_tests.sh --targets "$(THREAD_TESTS)" tsan \
	  --label-regex '^($(subst $(eval ) ,|,$(THREAD_TESTS)))$$'

.PHONY: fuzz
fuzz: ## Fuzz each target for SECONDS (600), under the sanitizers
	@$(PACKAGES) library tools tests clang
	cmake --preset asan
	cmake --build --preset asan --target cases_fuzz fused_fuzz config_fuzz plan_fuzz aclnn_fuzz
	tests/fuzz/run.sh build/asan $(SECONDS)

.PHONY: aarch64
aarch64: ## Cross-build for aarch64 and run the tests under qemu, with NEON and SVE
	@$(PACKAGES) library tools tests aarch64
	@tools/run_tests.sh aarch64 --label-exclude nightly

.PHONY: sbom
sbom: ## Rewrite the list of dependencies, sbom.spdx.json
	tools/write_sbom.py

.PHONY: coverage
coverage: ## Run the tests; print the lines and branches of the library that they miss
	@$(PACKAGES) library tools tests coverage
	@tools/run_tests.sh coverage --label-exclude nightly
	gcovr $(COVERED) --txt build/coverage/lines.txt build/coverage
	gcovr $(COVERED) --branches --fail-under-branch 95 build/coverage

SEED ?= 1
COUNT ?= 300
.PHONY: mutation
mutation: ## Break COUNT places of the library, drawn with SEED; the tests must notice 95 %
	@$(PACKAGES) library tools tests mutation
	python3 tools/mutation --seed $(SEED) --count $(COUNT)

.PHONY: nightly
nightly: ## What takes longer: tests, compilers, sanitizers, scalar target, aarch64, mutation
	@$(PACKAGES) library tools tests python clang aarch64 mutation
	tools/run_nightly.sh

.PHONY: model-test
model-test: ## Run Gemma 3 270M on real text beside llama.cpp; downloads 250 MB
	@$(PACKAGES) library python model
	@tools/run_model_tests.sh

.PHONY: clean
clean: ## Remove all build directories
	rm -rf build
