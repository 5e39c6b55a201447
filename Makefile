# The commands of the README. Each installs what is missing (as root, and says what) and works in a fresh clone.

.PHONY: help demo test check targets bench fuzz deny manual router static deb rpm build clean

help:
	@echo 'make demo     a satellite path in network namespaces, with and without Farlink (root); DEMO=custody for a link that comes and goes, DEMO=xcp for a router that says how fast, DEMO=starved for a slow return link'
	@echo 'make test     everything that is checked before a change goes in'
	@echo 'make check    all scenarios under all their expectations, before a release (root, an idle machine)'
	@echo 'make targets  type-checks the program for the processors of small routers (rustup)'
	@echo 'make bench    speed and size of the datapath (root); ARGS="--only hostile" for a part'
	@echo 'make fuzz     ten minutes for each fuzz target'
	@echo 'make deny     licences, sources and advisories of everything that is linked, with cargo-deny'
	@echo 'make manual   man pages, HTML pages and shell completions, into target/manual'
	@echo 'make router   the program as routers get it, without the laboratory; make static: for three processors, without a C library'
	@echo 'make deb      a Debian package; make rpm: an rpm package'

demo:
	@DEMO=$(DEMO) scripts/demo.sh $(ARGS)

test:
	@scripts/test.sh

check:
	@scripts/check.sh

targets:
	@scripts/check-targets.sh

bench:
	@scripts/bench.sh $(ARGS)

fuzz:
	@. scripts/need.sh; need_commands && need_package c++ g++ "the fuzzer's runtime"
	@fuzz/run

deny:
	@command -v cargo-deny >/dev/null || { echo 'installing cargo-deny with cargo'; cargo install --quiet --locked cargo-deny; }
	cargo deny check

# As routers get it: without the laboratory and its pages.
manual:
	cargo build --release --locked -p farlink --no-default-features
	"$${CARGO_TARGET_DIR:-target}/release/farlink" manual target/manual

# What goes onto routers: without the laboratory, stripped. `static` wants no C library on the machine that it runs on.
router:
	@packaging/build.sh

static:
	@packaging/build.sh x86_64-unknown-linux-musl aarch64-unknown-linux-musl armv7-unknown-linux-musleabihf

deb:
	@packaging/deb.sh

rpm:
	@packaging/rpm.sh

build:
	cargo build --release --locked

clean:
	cargo clean
