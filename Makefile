# The short way to everything; `make` alone lists it. Each target is a few plain commands, so read them here.

export CARGO_TARGET_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/fleet-echo/target

need = command -v $(1) >/dev/null || { echo "no $(1): $(2)" >&2; exit 1; }

# Every recipe that compiles Echo starts with this: it builds DuckDB when the machine has none, and says where it is.
with_duckdb = $(call need,cargo,install Rust from https://rustup.rs); \
	$(call need,c++,apt-get install g++); \
	dir=$$(echo/build-duckdb) || exit 1; \
	export DUCKDB_LIB_DIR="$$dir" DUCKDB_INCLUDE_DIR="$$dir" DUCKDB_STATIC=1;

.DEFAULT_GOAL := help
.PHONY: help demo test crash-test lint docs bench duckdb

help: ## list the targets
	@echo 'Echo finds the GPU that holds back a cluster. Start with `make demo`.'
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20
	@echo
	@echo 'The first of them compiles DuckDB, once: about 25 minutes on two cores. For cargo alone, say then:'
	@echo '  export DUCKDB_STATIC=1 DUCKDB_LIB_DIR=$$(echo/build-duckdb) DUCKDB_INCLUDE_DIR=$$(echo/build-duckdb)'

demo: ## a recorded job with one slow rank, through real agents and a real Echo
	@$(with_duckdb) \
	cargo build --release -p fleet-agent -p fleet-echo && exec "$$CARGO_TARGET_DIR/release/fleet-echo" demo

test: ## all tests
	@$(call need,python3,one test is a client in Python: apt-get install python3-venv)
	@python3 -m venv --help >/dev/null 2>&1 || { echo "no venv in python3: apt-get install python3-venv" >&2; exit 1; }
	@$(with_duckdb) \
	cargo build --workspace --bins && \
	if cargo nextest --version >/dev/null 2>&1; \
	then cargo nextest run --workspace $(NEXTEST_FLAGS) && cargo test --workspace --doc; \
	else cargo test --workspace; fi

ROUNDS ?= 200

crash-test: ## kill Echo under load ROUNDS=200 times and compare what was acknowledged with what is stored
	@$(with_duckdb) \
	cargo build --package fleet-echo --bins && \
	FLEET_ECHO_CRASH_ROUNDS=$(ROUNDS) cargo test --package fleet-echo --test it -- --nocapture crash::

lint: ## formatting and clippy, with DuckDB and without; warnings are errors
	@$(with_duckdb) \
	cargo fmt --check && \
	cargo lint && \
	cargo clippy --package fleet-echo --no-default-features --all-targets -- -D warnings

docs: ## the documentation of the code; warnings are errors
	@$(with_duckdb) \
	RUSTDOCFLAGS="-D warnings" cargo docs

bench: ## the benchmarks
	@$(with_duckdb) \
	cargo bench --package fleet-echo --benches

duckdb: ## only the library that Echo links
	@echo/build-duckdb
