# Common tasks; `make` alone lists them. Each target consists of a few plain commands.

export CARGO_TARGET_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/fleet-echo/target

# Compiling all is a sixth faster without what the next compilation could use again. Where cargo was called without make,
# somebody changes the code and uses it.
export CARGO_INCREMENTAL ?= $(if $(wildcard $(CARGO_TARGET_DIR)/debug/incremental/*),1,0)

need = command -v $(1) >/dev/null || { echo "no $(1): $(2)" >&2; exit 1; }

# Tools to build the agent's BPF programs.
with_bpf = $(call need,cc,apt-get install gcc); agent-bpf/install-tools || exit 1;

# Prerequisites to compile Echo: downloads DuckDB if it is missing, and sets its directory.
with_duckdb = $(with_bpf) $(call need,cargo,install Rust from https://rustup.rs); \
	dir=$$(echo/get-duckdb) || exit 1; \
	export DUCKDB_LIB_DIR="$$dir";

.DEFAULT_GOAL := help
.PHONY: help demo release dist check test lint docs unused nightly clients sweeps crash-test models deny bench bench-agent bench-import load soak fuzz fuzz-sql duckdb

help: ## list the targets
	@echo 'Echo finds the GPU that holds back a cluster. Start with `make demo`.'
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20
	@echo
	@echo 'They link DuckDB, which is fetched once. To run cargo without make:'
	@echo '  export DUCKDB_LIB_DIR=$$(echo/get-duckdb)'

# All commands below compile the whole workspace with its development dependencies: another selection of packages would
# compile the same crates again with other features. The smallest test binary stands for the development dependencies.
as_for_tests = --test harness

demo: ## a recorded job with one slow rank, through real agents and a real server
	@$(with_duckdb) \
	cargo build --workspace --bins $(as_for_tests) && exec "$$CARGO_TARGET_DIR/debug/fleet-echo" demo

release: ## optimised fleet-echo, fleet-agent and profiler plugin, as in the images
	@$(with_duckdb) \
	cargo build --release --package fleet-agent --package fleet-echo --package fleet-nccl-profiler

# Tools of other projects, installed once each, some minutes. Those with --debug are built without optimisation, which takes
# a third of the time and costs seconds of each run.
tools = $(CARGO_TARGET_DIR)/tools
with_tool = grep -q '"$(1) $(2) ' "$(tools)/.crates.toml" 2>/dev/null || env -u CARGO_TARGET_DIR CARGO_PROFILE_DEV_DEBUG=0 \
	cargo install --quiet --locked $(3) --force --root "$(tools)" $(1)@$(2) || exit 1;

dist: release ## an archive, .deb and .rpm packages, lists of their contents and checksums, in target/dist
	@$(call need,git,the time of the last commit is that of all files: apt-get install git)
	@$(with_duckdb) \
	$(call with_tool,cargo-deb,3.8.0) $(call with_tool,cargo-generate-rpm,0.21.1) $(call with_tool,cargo-cyclonedx,0.5.9) \
	PATH="$(tools)/bin:$$PATH" deploy/package/dist "$$CARGO_TARGET_DIR/dist"

check: ## all that a change has to pass: format, lints, documentation, tests; about a quarter of an hour
	@begin=$$(date +%s); for step in duckdb lint docs unused test; do \
		echo "== $$step"; from=$$(date +%s); \
		$(MAKE) --no-print-directory $$step || exit 1; \
		echo "== $$step: $$(($$(date +%s) - from)) s"; \
	done; echo "All passed in $$(($$(date +%s) - begin)) s."

# Four tests more than cores: those with probes run one after the other, and many others mostly wait.
beside_waits = --test-threads $$(($$(nproc) + 4))

test: ## all tests that can run on this machine; says which cannot, and why
	@$(call need,curl,the commands of the README are tests: apt-get install curl)
	@$(call need,jq,the commands of the README are tests: apt-get install jq)
	@$(call need,c++,one test loads the profiler plugin into a program in C++: apt-get install g++)
	@$(call need,python3,one test is a client in Python: apt-get install python3-venv)
	@python3 -m venv --help >/dev/null 2>&1 || { echo "no venv in python3: apt-get install python3-venv" >&2; exit 1; }
	@$(with_duckdb) \
	if cargo nextest --version >/dev/null 2>&1; \
	then cargo nextest run --workspace $(beside_waits) $(NEXTEST_FLAGS) && test-harness/ignored; \
	else cargo test --workspace --lib --bins --tests; fi && cargo test --workspace --doc

nightly: ## what is too long for each change: clients, sweeps, dependencies, models, crashes, fuzzers, benchmarks in brief
	@$(MAKE) --no-print-directory clients sweeps deny models
	@$(MAKE) --no-print-directory crash-test ROUNDS=40
	@$(MAKE) --no-print-directory fuzz fuzz-sql SECONDS=60
	@$(MAKE) --no-print-directory bench-import
	@$(MAKE) --no-print-directory load MINUTES=1 BENCH_FLAGS=--quick

# Tests whose names match a filter of nextest, from the same build as `make test`.
with_nextest = $(call need,cargo-nextest,cargo install --locked cargo-nextest); $(with_duckdb)

clients: ## test clients of other projects: MCP conformance, inspector and SDK, schemathesis, Prometheus, Alertmanager, Slurm, validator of FOCUS, Chromium, kubectl, NVRx, PostgreSQL; from npm, PyPI and Debian
	@$(with_nextest) \
	FLEET_NIGHTLY=1 cargo nextest run --workspace --no-fail-fast -E 'test(/^clients::/) | binary(clients)' $(NEXTEST_FLAGS) && \
	FLEET_NIGHTLY=1 test-harness/ignored

sweeps: ## valgrind over the profiler plugin, and extreme values for each function that SQL may call
	@$(with_nextest) \
	FLEET_NIGHTLY=1 cargo nextest run --workspace --no-tests pass -E 'test(/^valgrind_/)' $(NEXTEST_FLAGS) && \
	cargo nextest run --workspace --run-ignored only -E 'test(/::no_allowed_function_/)' $(NEXTEST_FLAGS) && \
	FLEET_NIGHTLY=1 test-harness/ignored

ROUNDS ?= 200

crash-test: ## kill Echo under load ROUNDS=200 times and compare acknowledged with stored events
	@$(with_nextest) \
	FLEET_ECHO_CRASH_ROUNDS=$(ROUNDS) cargo nextest run --workspace --no-capture -E 'test(/^crash::/)'

# Another flag of the compiler compiles everything again, so the models have a folder of their own. Without a bound of three
# switches between threads the checks take two minutes instead of seconds.
models: export LOOM_MAX_PREEMPTIONS ?= 3
models: ## check models of the lock-free tables of the profiler plugin: interleavings of two threads, memory orders
	@$(call need,cargo,install Rust from https://rustup.rs); \
	CARGO_TARGET_DIR="$$CARGO_TARGET_DIR/loom" RUSTFLAGS="--cfg loom" CARGO_PROFILE_RELEASE_LTO=off \
		cargo test --package fleet-nccl-profiler --release --lib loom_

lint: ## formatting and clippy; warnings are errors
	@$(with_duckdb) \
	cargo fmt --check && \
	cargo lint

docs: ## the documentation of the code; warnings are errors
	@$(with_duckdb) \
	RUSTDOCFLAGS="-D warnings" cargo docs

unused: ## dependencies that no code uses; installs cargo-machete once, a minute
	@$(call need,cargo,install Rust from https://rustup.rs); \
	$(call with_tool,cargo-machete,0.9.2,--debug) "$(tools)/bin/cargo-machete" --skip-target-dir

cargo_deny = "$(tools)/bin/cargo-deny"

deny: ## licences, sources and known vulnerabilities of the dependencies; installs cargo-deny once, some minutes
	@$(call need,cargo,install Rust from https://rustup.rs); \
	$(call with_tool,cargo-deny,0.20.2,--debug) \
	$(cargo_deny) check licenses bans sources || exit 1; \
	if timeout 60 $(cargo_deny) fetch db >/dev/null 2>&1; \
	then $(cargo_deny) check advisories; \
	else echo "advisories: skipped, their database (github.com/RustSec/advisory-db) could not be fetched"; fi

# Rotel, the receiver that Echo is compared with, in a separate directory. Without it the tables have no rows for it.
rotel_dir = $(CARGO_TARGET_DIR)/rotel
rotel_version = 0.0.1a15
with_rotel = rotel=$$(find "$(rotel_dir)" -name rotel-agent -type f 2>/dev/null | head -n 1); \
	if [ -z "$$rotel" ] && python3 -m venv "$(rotel_dir)" >/dev/null 2>&1 && \
		"$(rotel_dir)/bin/pip" install --quiet --retries 1 --timeout 20 rotel==$(rotel_version) >/dev/null 2>&1; \
	then rotel=$$(find "$(rotel_dir)" -name rotel-agent -type f | head -n 1); fi; \
	[ -n "$$rotel" ] || echo "no Rotel: python3 -m venv and pip could not install rotel==$(rotel_version), so its rows are left out" >&2;

# Flags of the load benchmark or of the agent's, such as BENCH_FLAGS='--quick'.
BENCH_FLAGS ?=

bench: ## the benchmarks: criterion's, then the ingest path as a process, into echo/docs/performance.md
	@$(with_duckdb) $(with_rotel) \
	cargo build --release --package fleet-echo && \
	cargo bench --package echo-bench --bench append --bench decode --bench detector && \
	cargo bench --package echo-bench --bench load -- $${rotel:+--rotel "$$rotel"} \
		--markdown "$(CURDIR)/echo/docs/performance.md" $(BENCH_FLAGS)

bench-agent: ## cost of probes and agent, into agent/docs/cost.md; needs root, but no DuckDB
	@[ "$$(id -u)" -eq 0 ] || { echo "make bench-agent needs root, because it attaches probes: run it with sudo" >&2; exit 1; }; \
	$(call need,cargo,install Rust from https://rustup.rs); $(with_bpf) \
	cargo bench --package fleet-agent --bench probes -- --markdown "$(CURDIR)/agent/docs/cost.md" $(BENCH_FLAGS)

bench-import: ## how fast traces of other tools are read; needs no DuckDB
	@$(call need,cargo,install Rust from https://rustup.rs); \
	cargo bench --package fleet-import --bench readers

MINUTES ?= 10

load: ## a simulated fleet of 10,240 ranks on one instance for MINUTES=10
	@$(with_duckdb) \
	cargo build --release --package fleet-agent && \
	cargo bench --package echo-bench --bench load -- --load --minutes $(MINUTES) $(BENCH_FLAGS)

soak: MINUTES = 30
soak: ## Echo for MINUTES=30 under continuous deletion
	@$(with_duckdb) \
	cargo bench --package echo-bench --bench load -- --soak --minutes $(MINUTES) $(BENCH_FLAGS)

SECONDS ?= 900

fuzz: ## all fuzzers except SQL, each for SECONDS=900, as many at once as there are cores
	@$(with_nextest) \
	FLEET_FUZZ_SECONDS=$(SECONDS) cargo nextest run --workspace --profile fuzz --run-ignored only \
		-E '(binary(fuzz) | test(/fuzz_/)) - test(/fuzz_sql/)'

fuzz-sql: ## SQL against the guard for SECONDS=900
	@$(with_nextest) \
	FLEET_FUZZ_SECONDS=$(SECONDS) cargo nextest run --workspace --profile fuzz --run-ignored only -E 'test(/fuzz_sql/)'

duckdb: ## only the library that Echo links
	@echo/get-duckdb
