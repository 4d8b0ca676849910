# The tasks of a checkout. Each target installs what it needs (tools/setup.sh); no configuration is necessary.
# CARGO_FLAGS are passed to every cargo command that compiles.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Targets run one after the other even with -j, because most need the whole machine. Only `make test` and `make tests` run
# some in parallel, by setting STREAMS.
ifndef STREAMS
.NOTPARALLEL:
endif
MAKEFLAGS += --no-print-directory
# No target compiles the same code twice, so incremental compilation would only take more time and space.
export CARGO_INCREMENTAL := 0

CARGO_FLAGS ?= --locked
# Cargo shows its progress only on a terminal.
CARGO_TALK = $(shell [ -t 2 ] || echo --quiet)
VENV_PYTHON := .venv/bin/python
# The QEMU machines for which the firmware is built (firmware/board).
BOARDS := lm3s6965evb mps2-an385
# The time that `make fuzz-smoke` spends on each fuzz target, in seconds.
FUZZ_SECONDS ?= 20

# The crates that a mote links.
PROTOCOLS := core seal sum broadcast serial

step = @printf '\n== %s\n' "$(1)" >&2

.PHONY: help
help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | awk -F'\t' '{ printf "  make %-12s %s\n", $$1, $$2 }'

.PHONY: demo
demo: setup-build ## Seal, store, sample and verify real readings, then detect the lies of a cloud
	@[ -x "$${CARGO_TARGET_DIR:-target}/demo/moteseal-demo" ] || echo 'building the demo, a few minutes the first time' >&2
	@cargo build --profile demo $(CARGO_TALK) $(CARGO_FLAGS) -p moteseal-demo
	@cargo run --profile demo --quiet $(CARGO_FLAGS) -p moteseal-demo -- $(DEMO_FLAGS)

.PHONY: demo-scale
demo-scale: setup-test ## Run a cloud on three JetStream servers and Cassandra, and kill one process of each kind in the middle
	@cargo build --profile demo $(CARGO_TALK) $(CARGO_FLAGS) -p moteseal -p moteseal-demo
	@programs=$${CARGO_TARGET_DIR:-target}/demo; $$programs/moteseal-demo scale --moteseal $$programs/moteseal $(DEMO_FLAGS)

.PHONY: bench
bench: setup-build ## Measure speed against physical limits; fail if a bar is missed
	@status=0; for suite in hashing verification sies broadcast service retrieval coordinator growth confidential; do \
		cargo run --release --quiet $(CARGO_FLAGS) -p moteseal-bench -- $$suite || status=1; done; exit $$status

.PHONY: bench-peers
bench-peers: setup-peers ## Compare Moteseal with other systems: trees, one signature per event, private sums, DTLS handshakes, Tessera (needs Go)
	@cd peers && cargo run --release --quiet $(CARGO_FLAGS)

.PHONY: lab
lab: setup-build ## Compare every table and figure of the four papers and of RERUM D5.3 with ours, in lab/report/index.html (about 10 minutes; docs/lab.md)
	@cargo run --release --quiet $(CARGO_FLAGS) -p moteseal-bench -- lab --out lab/report $(LAB_FLAGS)

.PHONY: lab-latency
lab-latency: setup-servers ## Measure latency from sensor to store through Mosquitto, NATS and Cassandra, into lab/latency; fail if a limit is missed (10 minutes; docs/lab.md)
	@cargo build --release $(CARGO_TALK) $(CARGO_FLAGS) -p moteseal -p moteseal-lab
	@"$${CARGO_TARGET_DIR:-target}/release/moteseal-lab" latency --out lab/latency $(LATENCY_FLAGS)

COSTS_FLAGS ?= --repeat 3

.PHONY: lab-costs
lab-costs: setup-servers ## Measure what the uploads of 100,000 devices cost in each process, into lab/costs; fail if a limit is missed (12 minutes; docs/scale.md)
	@cargo build --release $(CARGO_TALK) $(CARGO_FLAGS) -p moteseal -p moteseal-lab
	@"$${CARGO_TARGET_DIR:-target}/release/moteseal-lab" costs --out lab/costs $(COSTS_FLAGS)

# The output of two targets that run at the same time is mixed only on a terminal, where cargo shows its progress.
IN_BLOCKS = $(shell [ -t 2 ] || echo --output-sync=recurse)

.PHONY: test
test: ## Run every check: lints, the mote's build, both verifiers, all tests
	@$(MAKE) setup-build formatting
	@$(MAKE) STREAMS=2 --jobs=2 $(IN_BLOCKS) compiled checked
	@$(MAKE) tests-run absent-data

# What needs no compiled test, and its set-up. Most of it uses one processor or waits for the network, so it runs while the tests
# are compiled.
.PHONY: checked
checked:
	@$(MAKE) STREAMS= setup-test lint-files lint-firmware spec

.PHONY: lint lint-files lint-firmware formatting
lint: lint-files lint-firmware ## Check formatting, clippy, dependencies and the hygiene of the files
	$(call step,clippy)
	cargo clippy $(CARGO_FLAGS) --workspace --all-targets -- -D warnings

formatting: setup-build
	$(call step,formatting)
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo fmt --manifest-path peers/Cargo.toml --check
	cd firmware && cargo fmt --all --check

lint-files: setup-test formatting
	$(call step,hygiene of the files)
	@tools/hygiene.py
	@tools/test_hygiene.py
	@tools/claims.py
	@tools/costs.py --check
	@tools/test_costs.py
	@tools/manifests.py
	@tools/test_manifests.py
	@tools/test_engines.py
	@tools/telosb_csv.py --check
	$(call step,dependencies)
	@tools/deny.sh
	$(call step,the code in Go)
	@if go=$$(go env GOVERSION 2>/dev/null) && printf 'go1.24\n%s\n' "$$go" | sort -VC; then \
		cd peers/tessera && test -z "$$(gofmt -l .)" && GOTOOLCHAIN=local go vet -mod=readonly ./...; \
	else echo 'SKIPPED gofmt and go vet of peers/tessera: Go 1.24 is not installed'; fi

lint-firmware: setup-test
	$(call step,clippy of the firmware)
	@for board in $(BOARDS); do ( cd firmware && set -x && $(BY_ITSELF) cargo clippy --quiet $(CARGO_FLAGS) --workspace --release --features $$board -- -D warnings ); done

.PHONY: mote
mote: setup-build ## Build the crates of a mote for a Cortex-M3 without an operating system
	$(call step,core and the protocols for thumbv7m-none-eabi)
	$(BY_ITSELF) cargo build $(CARGO_FLAGS) $(PROTOCOLS:%=-p moteseal-%) --target thumbv7m-none-eabi

# The tests are compiled with clippy's driver, which lints each crate while compiling it. A separate
# run of clippy (`make lint`) would analyse the workspace and its dependencies a second time.
LINTING = RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__
TEST = $(LINTING) cargo test $(CARGO_FLAGS) --workspace
# Runs a cargo command independently of make's job server.
BY_ITSELF = env -u MAKEFLAGS -u MFLAGS
# This test program counts transmitted bytes. Tests that compete for the processor would increase the count, so it runs alone.
ALONE = broadcast_image
# Most tests wait for processes and timers, so more tests than processors run at once.
export RUST_TEST_THREADS ?= 4

.PHONY: tests compiled tests-run
tests: setup-test ## Run only the tests, of Rust, C, Python and the mote's firmware, and the mote's build
	@$(MAKE) STREAMS= compiled tests-run

compiled:
	$(call step,clippy and the compilation of the tests)
	$(BY_ITSELF) $(TEST) --no-run $(CARGO_TALK)

tests-run:
	$(call step,tests: two streams whose output is shown when they end)
	@$(MAKE) STREAMS=2 --jobs=2 --output-sync=recurse tests-program tests-other
	$(call step,the test program that runs alone)
	$(TEST) --test $(ALONE)

# These parts of the integration tests keep one processor busy for up to a minute each, or build the firmware. They run at the
# end. Two streams keep two processors busy; a third one would delay tests that measure times.
SLOW = mutation:: embedded:: model::
FOOTPRINT = footprint::
.PHONY: tests-program tests-cli tests-it tests-other tests-slow tests-footprint tests-programs
tests-program:
	@$(MAKE) --keep-going STREAMS= tests-cli tests-programs differential tests-slow tests-footprint

tests-cli:
	$(BY_ITSELF) $(TEST) --no-fail-fast --test cli

tests-it:
	$(BY_ITSELF) $(TEST) --no-fail-fast --test it -- $(SLOW:%=--skip %) --skip $(FOOTPRINT)

tests-other:
	@$(MAKE) --keep-going STREAMS= mote firmware-test c python examples tests-it

tests-slow:
	$(BY_ITSELF) $(TEST) --no-fail-fast --test it -- $(SLOW)

tests-footprint:
	$(BY_ITSELF) $(TEST) --no-fail-fast --test it -- $(FOOTPRINT)

# The unit tests, and the integration tests that are separate programs (CONTRIBUTING.md).
PROGRAMS := $(notdir $(basename $(wildcard crates/*/tests/*.rs bindings/*/tests/*.rs)))
PROGRAMS += $(notdir $(patsubst %/main.rs,%,$(wildcard crates/*/tests/*/main.rs)))
tests-programs:
	$(BY_ITSELF) $(TEST) --no-fail-fast --lib --bins $(patsubst %,--test %,$(filter-out it $(ALONE),$(PROGRAMS)))

.PHONY: examples
examples: setup-test
	$(call step,the examples of the documentation)
	$(BY_ITSELF) $(TEST) --no-fail-fast --doc

.PHONY: firmware-test
firmware-test: setup-test
	$(call step,the mote's firmware on this machine)
	cd firmware && $(BY_ITSELF) cargo test $(CARGO_FLAGS) -p moteseal-mote --target $$(rustc -vV | sed -n 's/^host: //p')

.PHONY: python
python: setup-test ## Test the Python package: its tests, types and example, with the binaries of the Rust tests
	$(call step,the Python package)
	@$(BY_ITSELF) $(LINTING) CARGO_FLAGS="$(CARGO_FLAGS)" PYTHON=$(VENV_PYTHON) bindings/python/test.sh

.PHONY: c
c: setup-test ## Test the C library for motes: header, examples on Linux and on a Cortex-M3, hostile use, README
	$(call step,the C library)
	@$(BY_ITSELF) bindings/c/test.sh

.PHONY: absent-data
absent-data:
	$(call step,external data)
	@tools/absent_data.py

.PHONY: test-long
test-long: setup-test ## Run the long tests: 10,000 simulated groups, broadcasts and CoAP transfers with faults, 10,000 DTLS sessions, 100,000 private sums, 20 minutes of hostile clients, floods of CoAP and DTLS, the conformance suite on Cassandra, losses of nodes of a cluster of three, the demo of a cloud of many processes, backups in a bucket of S3, 200 runs of a cluster with faults, a hub with 200 sensors, 100 reboots, 200 losses of power during updates, clippy of the peers
	$(call step,ten thousand groups)
	MOTESEAL_SEEDS=10000 cargo test --release $(CARGO_FLAGS) -p moteseal --test cli sampling_faults -- --nocapture
	$(call step,every interleaving of a small group)
	cargo test --release $(CARGO_FLAGS) -p moteseal --test cli every_interleaving -- --include-ignored --nocapture
	$(call step,ten thousand transfers over CoAP with faults)
	MOTESEAL_SEEDS=10000 cargo test --release $(CARGO_FLAGS) -p moteseal-net --test it coap_lossy -- --nocapture
	$(call step,ten thousand devices with DTLS sessions with one gateway)
	ulimit -n 12000 && MOTESEAL_DEVICES=10000 cargo test --release $(CARGO_FLAGS) -p moteseal --test cli coap_memory -- --nocapture
	$(call step,a hundred thousand private sums and queries)
	MOTESEAL_SEEDS=100000 cargo test --release $(CARGO_FLAGS) -p moteseal-client --test it sums:: -- --nocapture
	MOTESEAL_QUERY_CASES=100000 cargo test --release $(CARGO_FLAGS) -p moteseal-sum --test it query
	$(call step,ten thousand lies about private sums)
	MOTESEAL_SEEDS=10000 cargo test --release $(CARGO_FLAGS) -p moteseal-client --test it sum_refusals:: -- --nocapture
	$(call step,ten thousand broadcasts)
	MOTESEAL_SEEDS=10000 cargo test --release $(CARGO_FLAGS) -p moteseal-lab --test it broadcast_faults -- --nocapture
	MOTESEAL_SEEDS=10000 cargo test --release $(CARGO_FLAGS) -p moteseal-lab --test it broadcast_commands -- --nocapture
	$(call step,two hundred runs of a cloud on a cluster with faults)
	MOTESEAL_SEEDS=200 MOTESEAL_LONGEST_FAULT=45 cargo test --release $(CARGO_FLAGS) -p moteseal --test cli scale_faults -- --nocapture
	$(call step,three verifiers on two hundred thousand changed inputs)
	cargo build --release $(CARGO_FLAGS) -p moteseal-vectors
	$(VENV_PYTHON) spec/differential.py --rust $(or $(CARGO_TARGET_DIR),target)/release/moteseal-vectors --cases 100000 --op stream.bundle --op stream.read
	$(VENV_PYTHON) spec/differential.py --rust $(or $(CARGO_TARGET_DIR),target)/release/moteseal-vectors --cases 100000 --op proof.open --op answer.open
	$(call step,hostile clients of a cloud for twenty minutes)
	MOTESEAL_SOAK_SECONDS=1200 cargo test --release $(CARGO_FLAGS) -p moteseal --test cli soak -- --nocapture
	$(call step,floods of CoAP and DTLS servers for ten seconds each)
	MOTESEAL_FLOOD_SECONDS=10 cargo test --release $(CARGO_FLAGS) -p moteseal-net --test it hostile:: -- --nocapture --test-threads 1
	$(call step,the conformance suite and losses of the node on Cassandra)
	cargo test --release $(CARGO_FLAGS) -p moteseal-table --test it -- --include-ignored --nocapture
	$(call step,a cloud on three nodes of Cassandra that loses one and two of them)
	cargo test --release $(CARGO_FLAGS) -p moteseal --test cli three_nodes -- --include-ignored --nocapture
	$(call step,the demo of a cloud on three JetStream servers and Cassandra)
	@$(MAKE) demo-scale DEMO_FLAGS=--quick
	$(call step,backups in a bucket of S3)
	@tools/engines.sh install versitygw
	cargo test --release $(CARGO_FLAGS) -p moteseal --test cli backup_bucket -- --include-ignored --nocapture
	$(call step,a hub of two hundred sensors and a hub that is killed thirty times)
	cargo test --release $(CARGO_FLAGS) -p moteseal --test cli two_hundred_sources -- --ignored --nocapture
	MOTESEAL_HUB_KILLS=30 cargo test --release $(CARGO_FLAGS) -p moteseal --test cli killed_hubs -- --nocapture
	$(call step,a hundred reboots of whole motes)
	MOTESEAL_SEEDS=5 cargo test $(CARGO_FLAGS) -p moteseal --test cli mote_qemu -- --nocapture
	$(call step,two hundred losses of power during updates of firmware)
	MOTESEAL_CUTS=200 cargo test $(CARGO_FLAGS) -p moteseal --test cli firmware_update -- --nocapture
	$(call step,the measurements of peers)
	cargo clippy $(CARGO_FLAGS) --manifest-path peers/Cargo.toml --all-targets -- -D warnings
	$(call step,broadcasts over real UDP between network namespaces)
	cargo build --release $(CARGO_TALK) $(CARGO_FLAGS) -p moteseal
	@tools/broadcast_netns.py

.PHONY: spec
spec: setup-test ## Replay every test vector with the verifiers in Python and JavaScript
	$(call step,the verifiers of the specification)
	@$(VENV_PYTHON) spec/verify.py --vectors spec/vectors/v1
	@node spec/js/verify.mjs vectors | tail -n 1
	@$(VENV_PYTHON) spec/example.py --check
	@$(VENV_PYTHON) spec/verify.py merkle

# The binary that the tests have built.
VECTORS_BINARY = $(or $(CARGO_TARGET_DIR),target)/debug/moteseal-vectors
.PHONY: differential
differential: setup-test ## Compare the three verifiers on changed inputs
	$(call step,three verifiers on changed inputs)
	@$(VENV_PYTHON) spec/differential.py --rust $(VECTORS_BINARY) --cases 2000

.PHONY: vectors
vectors: setup-build ## Regenerate the test vectors
	@cargo run --quiet $(CARGO_FLAGS) -p moteseal-vectors -- write

.PHONY: fuzz-smoke
fuzz-smoke: setup-build ## Fuzz every parser with coverage guidance, FUZZ_SECONDS each
	$(call step,fuzzing)
	@tools/fuzz.sh $(FUZZ_SECONDS)

.PHONY: setup-build
setup-build:
	@$(BY_ITSELF) tools/setup.sh build

.PHONY: setup-peers
setup-peers:
	@$(BY_ITSELF) tools/setup.sh peers

.PHONY: setup-servers
setup-servers:
	@$(BY_ITSELF) tools/setup.sh servers

.PHONY: setup-test
setup-test:
	@$(BY_ITSELF) tools/setup.sh test
