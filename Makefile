# make setup   install what building and testing need and isn't there (Debian 12)
# make build   the release binary
# make run     a table over demo programs, until Ctrl-C
# make test    every test; what was skipped, and why, at the end
# make bench   benchmarks
# make lint    formats and lints, changing nothing
# make accept  acceptance workloads beside this tree, where they are

MEMPROV = $(or $(CARGO_TARGET_DIR),target)/release/memprov
ACCEPT = ../shared/accept/accept.py

.DEFAULT_GOAL := build
.PHONY: setup build run test bench lint accept

setup:
	@.ci/setup test

build:
	@.ci/setup build
	@cargo build --release --locked -p memprov

run:
	@tests/demo/privileges
	@.ci/setup build
	@cargo build --quiet --release --locked -p memprov
	@tests/demo/run $(MEMPROV)

test:
	@.ci/setup test
	@.ci/test

bench:
	@.ci/setup build
	@cargo bench --locked --workspace
	@cargo build --quiet --release --locked -p memprov
	@tests/perf/perf.py --memprov $(MEMPROV) --pairs 7 calls

lint:
	@.ci/lint

accept:
	@if [ -x $(ACCEPT) ]; then \
		set -e; \
		cargo build --quiet --release --locked -p memprov; \
		for mode in early late replay; do $(ACCEPT) --memprov $(MEMPROV) --mode $$mode; done; \
		$(ACCEPT) --memprov $(MEMPROV) --all; \
	else \
		echo "nothing to run: $(ACCEPT) is not there"; \
	fi
