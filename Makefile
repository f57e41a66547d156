# Everything a contributor types. The virtual environment is made once and again whenever pyproject.toml changes.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
OUTSIDE := $(VENV)/outside
KUBE_VERSION ?= 1.36.3
export KUBE_VERSION
# How often `make soak` repeats, from which seed, and which tests.
N ?= 50
SEED ?=
ARGS ?=

# What nodes and networks do to a driver, random bytes for every decoder, drivers with every fault for the conformance kit,
# every GPU in every mode for every release, kills on the way of an interface to a pod, a short run of `make endurance`.
SLOW := tests/faults tests/fuzz tests/tools/conformance tests/node/prepare/test_crash.py tests/testing/test_crashes.py \
  tests/endurance

# One long test for each guard: they are divided among the workers one by one.
GUARDS := tests/faults/test_protocol_guards.py

# What `make unit` runs, here and on the newest Python.
UNIT := -n 2 --dist loadfile $(SLOW:%=--ignore %)

# How often `make faults` repeats what is drawn, and which of the guards have their turn: see tests/counts.py.
FULL ?=
faults: export DRA_SDK_FULL ?= $(FULL)
faults: export DRA_SDK_TURN ?= $(shell expr $$(date +%s) / 86400)

# Where these tests make their files: in memory if there are 4 GB for them, since there are hundreds of thousands; else where pytest does.
unit test-drivers faults: export PYTEST_DEBUG_TEMPROOT ?= $(shell df -k --output=fstype,avail /dev/shm 2>/dev/null | \
  awk '$$1 == "tmpfs" && $$2 > 4000000 {print "/dev/shm"}')
unit test-drivers faults: export TMPDIR ?= $(PYTEST_DEBUG_TEMPROOT)

# They keep the bytecode of what they import, also where the environment says otherwise, since they start 300 processes.
unit test-drivers faults: export PYTHONDONTWRITEBYTECODE :=

# Drivers as pods of the image, which is built for them.
IMAGE := tests/cluster/test_image

# What is drawn at random for a real API server or scheduler and for ours, and must come out alike.
DRAWN := tests/cluster/test_differential.py tests/cluster/test_preemption.py tests/cluster/test_validation.py tests/cluster/test_cel.py \
  tests/cluster/test_workloads.py

.PHONY: demo test lint unit test-drivers test-newest faults test-template soak test-core test-cluster test-image test-differential test-lab test-gpu follow cluster-build helm promtool cluster-up cluster-down bench bench-matching bench-nri bench-net bench-lab bench-picture bench-size endurance proto site reference recordings lock release clean

demo: $(VENV)/.installed   ## the CPU driver on this machine's CPUs, against an embedded kubelet and API server
	$(BIN)/dra-sdk demo cpu

test: lint unit test-drivers   ## everything that needs no cluster

lint: $(VENV)/.developed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python $(DISTRIBUTIONS) lint
	$(BIN)/python -m tests.node_wing

unit: $(VENV)/.developed
	$(BIN)/python -m pytest $(UNIT)

test-drivers: $(OUTSIDE)/.installed   ## the drivers' own tests, with the SDK as an outside author has it
	$(OUTSIDE)/bin/python $(DISTRIBUTIONS) test

test-newest: $(VENV)/.developed   ## make unit on the newest Python, that of Debian sid; needs root and debootstrap
	$(BIN)/python -m tests.newest $(UNIT)

faults: $(VENV)/.developed $(OUTSIDE)/.installed   ## everything that can go wrong; FULL=1 with ten thousand kills, a hundred thousand steps, all guards
	$(BIN)/python -m pytest -n 2 --dist loadfile $(SLOW) --ignore $(GUARDS) --timeout 300
	$(BIN)/python -m pytest -n 2 $(GUARDS)
	$(OUTSIDE)/bin/python $(DISTRIBUTIONS) test -m faults --timeout 300

test-template: $(VENV)/.developed   ## every kind of new driver, built, installed, typed, conforming; tutorials and how-to pages as they stand
	$(BIN)/python -m pytest -n 2 tests/template

soak: $(VENV)/.developed   ## tests with threads, sockets or processes, N times in random order under load; ARGS=tests/kube for some
	$(BIN)/python -m tests.soak --rounds $(N) $(SEED:%=--seed %) $(ARGS)

test-core: $(VENV)/.developed   ## the core of test-cluster: registration, slices, prepare, CDI, pinning, a pod of each bundled driver; needs root, and Go for the first build
	$(BIN)/python -m tests.cluster.harness check --suite $@
	$(BIN)/python -m tests.cluster.harness build
	$(BIN)/python -m pytest tests/cluster -m core

test-cluster: $(VENV)/.developed   ## a real control plane, kubelet and containerd; needs root, podman, and Go for the first build
	$(BIN)/python -m tests.cluster.harness check --suite $@
	$(BIN)/python -m tests.cluster.harness build
	$(BIN)/python -m pytest tests/cluster $(DRAWN:%=--ignore %) $(IMAGE:%=--ignore %)

test-image: $(VENV)/.developed   ## drivers as pods of the image that this checkout builds; needs root, buildah, debootstrap, and Go for the first build
	$(BIN)/python -m tests.cluster.harness check --suite $@
	$(BIN)/python -m tests.cluster.harness build
	$(BIN)/python -m tests.cluster.harness image
	$(BIN)/python -m pytest -rP $(IMAGE) # with the figures that the tests print

test-differential: $(VENV)/.developed   ## drawn cases for a real API server and scheduler, and for the simulated ones
	$(BIN)/python -m tests.cluster.harness check --suite $@
	$(BIN)/python -m tests.cluster.harness build
	$(BIN)/python -m pytest $(DRAWN)

test-lab: $(VENV)/.developed   ## a virtual machine with NUMA, PCI, IOMMU: GPU passthrough; a node of a cluster: CPUs, huge pages, SR-IOV, RDMA; needs root, debootstrap, and Go for the first build
	$(BIN)/python -m tests.lab.harness prepare
	$(BIN)/python -m pytest tests/lab

test-gpu: $(VENV)/.developed   ## a machine with NVIDIA GPUs, whose settings stay as they are; needs root, podman, crun, gcc
	$(BIN)/python -m pytest -rP tests/gpu

follow: $(VENV)/.developed   ## what KUBE_VERSION has that this package does not know; FLAGS="--only gates fields" for some parts
	$(BIN)/python -m tests.cluster.follow $(FLAGS)

cluster-build: $(VENV)/.developed   ## the Kubernetes binaries for these tests, once for each KUBE_VERSION
	$(BIN)/python -m tests.cluster.harness build

helm: $(VENV)/.developed   ## the Helm with which the tests compare the chart, once; needs Go
	$(BIN)/python -m tests.cluster.harness helm

promtool: $(VENV)/.developed   ## the promtool with which the tests try the alerts, once; from Debian
	$(BIN)/python -m tests.tools.manifests.promtool

cluster-up: $(VENV)/.developed   ## the same cluster, left running
	$(BIN)/python -m tests.cluster.harness up

cluster-down: $(VENV)/.developed
	$(BIN)/python -m tests.cluster.harness down

bench: $(VENV)/.developed   ## side by side with the Go library; FLAGS=--quick for a smoke run
	$(BIN)/python -m tests.bench $(FLAGS)
	$(BIN)/python -m tests.bench.login $(filter --quick,$(FLAGS))

bench-nri: $(VENV)/.developed   ## how long a container runtime waits for the CPU driver
	$(BIN)/python -m tests.bench.nri

bench-net: $(VENV)/.developed   ## how long a container runtime waits for the network driver; needs root
	$(BIN)/python -m tests.bench.net $(FLAGS)

bench-lab: $(VENV)/.developed   ## the same with virtual functions, in the virtual machine, whose clock counts instructions; needs root and debootstrap
	$(BIN)/python -m tests.lab.harness test --count-instructions tests/lab/attach -s

bench-matching: $(VENV)/.developed   ## allocation side by side with the Go allocator
	$(BIN)/python -m tests.bench.matching $(FLAGS)

bench-picture: $(VENV)/.developed   ## the picture of 1 000 nodes in Chromium: opening, scrolling, finding; needs chromium-driver
	$(BIN)/python -m tests.bench.picture $(FLAGS)

bench-size: $(VENV)/.developed   ## time and memory of dra-sdk simulate up to 5 000 nodes, a million devices and 10 000 pods; FLAGS="--case yaml-500" for one
	$(BIN)/python -m tests.bench.size $(FLAGS)

endurance: $(VENV)/.developed   ## 50 000 pods come and go on a node with three drivers, with faults among them; FLAGS="--pods 2000" for fewer
	$(BIN)/python -m tests.endurance $(FLAGS)

site: $(VENV)/.documented   ## the site of docs/ in build/site, without warnings; then its links and files are checked
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(BIN)/python -m mkdocs build --strict --quiet
	$(BIN)/python -m docs.site.check build/site

reference: $(VENV)/.developed   ## the pages of docs/reference, made of the code: signatures, docstrings, flags, metrics, feature gates
	$(BIN)/python -m docs.site.reference

recordings: $(VENV)/.documented   ## the terminal sessions of README and site as pictures, docs/recordings
	$(BIN)/python -m docs.site.recordings

lock:   ## renew the versions and hashes that the image installs
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet --disable-pip-version-check 'uv>=0.9'
	build/lock/bin/python deploy/lock/lock.py

release: $(VENV)/.developed   ## a dry run: wheel and sdist, built twice and compared, in build/release; publishes nothing
	$(BIN)/python -m tests.deploy.release build/release

proto: $(VENV)/.developed   ## regenerate the messages of kubelet, device plugins and NRI
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. dra_sdk/wire/proto/*.proto
	cd drivers/plugin && $(CURDIR)/$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. dra_driver_plugin/*.proto

# Third-party packages come from lock files with hashes, ours from their folders: no index is asked for our names.
PROJECTS := pyproject.toml drivers/list.txt $(wildcard drivers/*/pyproject.toml) $(wildcard deploy/lock/*.txt drivers/*/lock.txt)
DISTRIBUTIONS := tests/distributions.py

$(VENV)/.installed: $(PROJECTS)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(DISTRIBUTIONS) demo cpu
	@touch $@

$(VENV)/.developed: $(PROJECTS)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(DISTRIBUTIONS) develop
	@touch $@ $(VENV)/.installed

$(VENV)/.documented: $(VENV)/.developed
	$(BIN)/python $(DISTRIBUTIONS) document
	@touch $@

# What an outside author has: the SDK's wheel and no checkout.
$(OUTSIDE)/.installed: $(PROJECTS) $(shell git ls-files dra_sdk templates deploy/chart)
	@test -x $(OUTSIDE)/bin/python || $(PYTHON) -m venv $(OUTSIDE)
	$(OUTSIDE)/bin/python $(DISTRIBUTIONS) outside
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
