# make setup   install what building and testing need and isn't there (Debian 12)
# make build   the release binary
# make static  the same as one file that needs no library, for images and initramfs
# make run     a table over demo programs, until Ctrl-C
# make test    every test; what was skipped, and why, at the end
# make e2e     from a workload to a query: memprov, two Collectors, Prometheus (part of test)
# make collector, collector-full   the Collectors of otel-collector/
# make dashboards   writes dashboards/*.json from their descriptions
# make bench   benchmarks
# make curves  accuracy against overhead, measured into docs/curves (10 minutes)
# make deb     the Debian package; make package-test installs, upgrades and purges it in a guest
# make lint    formats and lints, changing nothing
# make accept  acceptance workloads beside this tree, where they are

MEMPROV = $(or $(CARGO_TARGET_DIR),target)/release/memprov
DEB = PATH="$(or $(CARGO_TARGET_DIR),target)/tools/bin:$$PATH" cargo deb --quiet --no-build --strip -p memprov
PACKAGE_TEST = $(or $(CARGO_TARGET_DIR),target)/package-test
# glibc is linked in, too: BFD's linker, for what LLD makes of libelf's archive crashes before main. libelf wants zstd.
STATIC = -C target-feature=+crt-static -C linker-features=-lld -C link-arg=-lzstd
STATIC_TARGET = x86_64-unknown-linux-gnu
ACCEPT = ../shared/accept/accept.py

.DEFAULT_GOAL := build
.PHONY: setup build static run test e2e collector collector-full dashboards bench curves deb package-test lint accept

setup:
	@.ci/setup test

build:
	@.ci/setup build
	@cargo build --release --locked -p memprov

static:
	@.ci/setup static
	@LIBBPF_SYS_LIBRARY_PATH=$$(dirname "$$(gcc -print-file-name=libelf.a)") RUSTFLAGS="$(STATIC)" \
		CARGO_PROFILE_RELEASE_STRIP=symbols \
		cargo build --release --locked -p memprov --features memprov-bpf/static --target $(STATIC_TARGET)
	@echo "$(or $(CARGO_TARGET_DIR),target)/$(STATIC_TARGET)/release/memprov"

run:
	@tests/demo/privileges
	@.ci/setup build
	@cargo build --quiet --release --locked -p memprov
	@tests/demo/run $(MEMPROV)

test:
	@.ci/setup test
	@.ci/test

e2e:
	@.ci/setup test
	@cargo build --quiet --release --locked -p memprov
	@cargo test --locked -p memprov-tests --test e2e -- --test-threads=1

collector:
	@.ci/setup go
	@otel-collector/build core

collector-full:
	@.ci/setup go
	@cd otel-collector && bin=$$(./build full)/otelcol-memprov && \
		K8S_NODE_NAME=any $$bin validate --config=agent.yaml --config=agent-k8s.yaml && \
		$$bin validate --config=gateway.yaml --config=scrape.yaml && echo $$bin

dashboards:
	@.ci/setup go
	@$$(otel-collector/build dashboards)/dashboards dashboards

bench:
	@.ci/setup build
	@cargo bench --locked --workspace --bench '*'
	@cargo build --quiet --release --locked -p memprov
	@tests/perf/perf.py --memprov $(MEMPROV) --pairs 7 calls

curves: build
	@tests/perf/curves.py --memprov $(MEMPROV)

deb: build
	@.ci/setup deb
	@$(DEB)

package-test: build
	@.ci/setup deb
	@mkdir -p $(PACKAGE_TEST)
	@$(DEB) --deb-version 0.0.1 --fast --output $(PACKAGE_TEST)/first.deb
	@$(DEB) --deb-version 0.0.2 --fast --output $(PACKAGE_TEST)/second.deb
	@packaging/tests/run $(PACKAGE_TEST)

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
