# SPDX-License-Identifier: Apache-2.0

SHELL := bash
.DEFAULT_GOAL := help

# Use the same flags everywhere, so that all builds share one cache.
export GOFLAGS := -trimpath -buildvcs=false
export CGO_ENABLED := 0

VERSION ?= $(shell scripts/version.sh)
COMMIT := $(shell scripts/version.sh --commit)
LDFLAGS := -s -w -X yunion.io/x/ocadm/internal/version.Version=$(VERSION) -X yunion.io/x/ocadm/internal/version.Commit=$(COMMIT) \
	-X k8s.io/component-base/version.gitVersion=v1.36.3 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36
REGISTRY ?= registry.cn-beijing.aliyuncs.com/yunionio
NODES ?= 2
CONTROL_PLANES ?= 1
NODE ?= 1
DISTRO ?= bookworm
# The lab of lab-up, lab-shell and lab-down; "quickstart" is the lab of the quickstart.
LAB ?= default
CLOUD_VERSION ?= v4.0.3
RELEASE_DIR ?= dist/release

##@ Start here

.PHONY: help
help: ## Show the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: quickstart
quickstart: ## Start two machines with a real cluster and a running cloud (root, Linux; prints its progress)
	@scripts/gobuild.sh bin/quickstart ./test/quickstart
	bin/quickstart up --nodes $(NODES) --control-planes $(CONTROL_PLANES) --version $(CLOUD_VERSION) $(if $(LAB_SERVICE_IMAGES),--service-images "$(LAB_SERVICE_IMAGES)")

.PHONY: quickstart-down
quickstart-down: ## Remove the quickstart's machines with all mounts, namespaces, bridges and processes
	@scripts/gobuild.sh bin/quickstart ./test/quickstart
	bin/quickstart down

# The Debian packages are installed first: without a database server, unit tests skip and integration tests fail. The parts run one after the other;
# each uses both cores by itself.
.PHONY: test
test: ## Run everything that CI runs
	go run ./test/lab prepare
	@set -e; for part in lint unit integration e2e; do start=$$SECONDS; $(MAKE) --no-print-directory $$part; echo "make $$part: $$((SECONDS - start)) s"; done

##@ Build

.PHONY: build
build: bin/ocadm ## Build bin/ocadm

.PHONY: bin/ocadm
bin/ocadm:
	@scripts/gobuild.sh $@ ./cmd/ocadm -ldflags '$(LDFLAGS)'

.PHONY: bundle
bundle: ## Build the lab's bundle (node software and all images) from Go modules and Debian packages
	go run ./test/lab bundle --version $(CLOUD_VERSION) -o dist/ocadm.bundle $(if $(KUBERNETES),--kubernetes-version $(KUBERNETES)) $(if $(LAB_SERVICE_IMAGES),--service-images "$(LAB_SERVICE_IMAGES)")

.PHONY: release
release: ## Build a release for amd64 and arm64 in dist/release; RPM_KEY and APK_KEY sign packages: make release VERSION=v0.1.0
	LDFLAGS='$(LDFLAGS)' scripts/release/release.sh $(VERSION) $(RELEASE_DIR)

.PHONY: release-twice
release-twice: ## Build a release in two checkouts with separate caches and compare the files (half an hour or more)
	LDFLAGS='$(LDFLAGS)' scripts/release/twice.sh $(VERSION)

.PHONY: generate
generate: ## Regenerate deepcopy code, the CRDs and the reference documentation
	scripts/generate.sh

.PHONY: golden
golden: ## Update the golden files; review the diff
	UPDATE=1 go test ./operatorctl/... ./phases/... ./cmd/...

##@ Test

# lint has vetted the same packages. On two cores, half of the time is waiting, so four packages run at once. The three modules read files outside their own
# directories, whose changes Go's test cache does not notice.
.PHONY: unit
unit: ## Run unit, golden and command-line tests
	go test -p 4 -vet=off -timeout 60m ./api/... ./cluster/... ./cmd/... ./docs/... ./internal/... ./operatorctl/... ./phases/... ./templates/... ./scripts/... ./test/lab/... ./test/fakecloud/... ./test/scenario/...
	cd test/alerts && go test -count=1 ./...
	cd test/charts && go test -count=1 ./...
	cd test/ignition && go test -count=1 ./...

# These tests depend only on their own code and on test/lab/modules, so Go may cache their results; -count=1 runs them again. The limit lets a test that hangs
# print its stack before CI ends.
# Each part has a control plane and a database server of its own. They wait for half of the time, so four parts run at once. The names of the tests divide the
# two large packages.
.PHONY: integration
integration: ## Run the tests with a real etcd, kube-apiserver and MariaDB on loopback
	@$(MAKE) --no-print-directory --keep-going --jobs=4 integration-first integration-second faults-first faults-second integration-others

INTEGRATION := OCADM_TEST_REQUIRE=1 go test -vet=off -timeout 50m
.PHONY: integration-first integration-second faults-first faults-second integration-others
integration-first:
	$(INTEGRATION) -run '^Test[A-K]' ./test/integration
integration-second:
	$(INTEGRATION) -skip '^Test[A-K]' ./test/integration
faults-first:
	$(INTEGRATION) -run '^Test[A-L]' ./test/integration/faults
faults-second:
	$(INTEGRATION) -skip '^Test[A-L]' ./test/integration/faults
integration-others:
	$(INTEGRATION) -p 1 $$(go list ./test/integration/... | grep -v -e /integration$$ -e /faults$$)

.PHONY: test-mysql
test-mysql: ## Run the database tests with Oracle's MySQL from Debian unstable instead of MariaDB
	dir=$$(scripts/mysql.sh) && OCADM_TEST_MYSQL=$$dir OCADM_TEST_REQUIRE=1 go test -count=1 -timeout 30m ./internal/mysql/... ./internal/identity ./operatorctl/effects ./test/integration

# The parts of the sweep take minutes to hours each. make -k sweep continues after a failed part.
.PHONY: sweep
sweep: ROUNDS = 20
sweep: CONTROL_PLANES = 3
sweep: sweep-operator sweep-address killsweep move powercuts ## Run all sweeps below: the operator, every command killed at every step, 20 power cuts (several hours)

# CI has no time for them. The sweep of moves is part of make sweep.
.PHONY: labs
labs: replica balancer disaster poller online machines fleet fleet-ha ha ca-rotation days upgrade ## Run the tests on lab machines that CI omits, one after another (hours)

.PHONY: sweep-address
sweep-address: ## Kill or partition the holder of the virtual address 50 times (seven minutes)
	OCADM_SWEEP=all OCADM_TEST_REQUIRE=1 go test -count=1 -v -timeout 60m ./test/integration/virtualaddress/

.PHONY: sweep-operator
sweep-operator: ## Kill the operator at every side effect and run the long faults (half an hour or more)
	OCADM_SWEEP=all OCADM_TEST_REQUIRE=1 go test -count=1 -v -timeout 120m ./test/integration/faults/
	OCADM_SWEEP=all OCADM_TEST_REQUIRE=1 go test -count=1 -v -timeout 60m -run 'TestDiffIsExact|TestDiffIsWhatFollows|TestOnlyAnOperationMovesTheRelease' ./operatorctl/reconcile/ ./test/integration/

.PHONY: killsweep
killsweep: ## Kill init, join, reset, etcd restore, move, upgrade and restore before and after every step on lab machines, and roll back (hours)
	OCADM_TEST_KILLSWEEP=1 OCADM_TEST_REQUIRE=1 go test -count=1 -v -timeout 180m -run 'TestKillSweep$$' ./test/e2e/
	OCADM_TEST_KILLSWEEP=1 OCADM_TEST_UPGRADE=$(or $(FROM),v1.36.2) OCADM_TEST_REQUIRE=1 go test -count=1 -v -timeout 180m -run 'TestKillSweepDay2$$' ./test/e2e/

.PHONY: move
move: ## Change the addresses of a worker and of the only control-plane node on lab machines, killed at every step, and change them back (some minutes)
	OCADM_TEST_MOVE=1 OCADM_TEST_REQUIRE=1 go test -count=1 -v -timeout 60m -run 'TestMove$$' ./test/e2e/

.PHONY: certificates
certificates: ## Let the operator renew 15-minute certificates for DURATION on CONTROL_PLANES lab machines while clients send requests
	OCADM_TEST_CERTIFICATES=$(CONTROL_PLANES) OCADM_TEST_DURATION=$(or $(DURATION),20m) OCADM_TEST_REQUIRE=1 go test -count=1 -v -timeout 24h -run 'TestCertificates$$' ./test/e2e/

.PHONY: ca-rotation
ca-rotation: ## Rotate the CAs of a cluster of CONTROL_PLANES lab machines and a worker, killed in the middle, while clients send requests
	OCADM_TEST_CA_ROTATION=$(CONTROL_PLANES) OCADM_TEST_REQUIRE=1 go test -count=1 -v -timeout 60m -run 'TestCARotation$$' ./test/e2e/

.PHONY: powercuts
powercuts: ## Kill all lab machines of a cloud with CONTROL_PLANES=1 at the same time, ROUNDS=10 times, under load and during updates (half an hour)
	OCADM_TEST_POWERCUTS=1 OCADM_POWERCUTS_ROUNDS=$(or $(ROUNDS),10) OCADM_POWERCUTS_CONTROL_PLANES=$(CONTROL_PLANES) OCADM_TEST_REQUIRE=1 go test -count=1 -v -timeout 180m -run TestPowerCuts ./test/e2e/

# The machines wait for most of the time, so two tests run at once.
.PHONY: e2e
e2e: ## Test init, join, a cloud, delete, reset and bad input on lab machines
	@mkdir -p bin && scripts/tool.sh test gotestsum gotest.tools/gotestsum >/dev/null
	@$(MAKE) --no-print-directory --keep-going --jobs=2 e2e-first e2e-second
	OCADM_TEST_REQUIRE=1 go test -count=1 -vet=off -run TestSameAsTheLab ./internal/bundle/collect

.PHONY: e2e-first e2e-second
e2e-first: E2E = -run '^TestCloud$$'
e2e-second: E2E = -skip '^TestCloud$$'
e2e-first e2e-second:
	@set -o pipefail; OCADM_TEST_REQUIRE=1 "$$(scripts/tool.sh test gotestsum gotest.tools/gotestsum)" --format standard-verbose --hide-summary=skipped,output --jsonfile=bin/$@.json \
		--post-run-command='go run ./scripts/failures' -- -count=1 -vet=off -v -timeout 80m $(E2E) ./test/e2e/... 2>&1 | sed -u 's/^/$@: /'

.PHONY: distributions
distributions: ## Test a cluster on lab machines with Debian 11 and 13, with IPv4 and IPv6 (some minutes each)
	OCADM_TEST_DISTRIBUTIONS=1 OCADM_TEST_REQUIRE=1 go test -count=1 -v -timeout 60m -run TestDistributions ./test/e2e/

.PHONY: earlier-kubernetes
earlier-kubernetes: ## Test a cluster and a cloud on the minor version of Kubernetes before the linked one (the first run builds it: half an hour)
	OCADM_TEST_KUBERNETES=1 OCADM_TEST_REQUIRE=1 go test -count=1 -v -timeout 90m -run TestEarlierKubernetes ./test/e2e/

.PHONY: upgrade
upgrade: ## Upgrade Kubernetes on lab machines from FROM=v1.36.2 to the linked version under a running cloud, with a broken static pod and a killed command (a quarter of an hour)
	OCADM_TEST_UPGRADE=$(or $(FROM),v1.36.2) OCADM_TEST_REQUIRE=1 go test -count=1 -v -timeout 60m -run TestUpgrade ./test/e2e/

.PHONY: online
online: ## Test an installation without a bundle and with a user's defaults, from a mirror under the projects' names (some minutes)
	OCADM_TEST_ONLINE=1 OCADM_TEST_REQUIRE=1 go test -count=1 -v -timeout 40m -run TestOnlineDefaults ./test/e2e/

.PHONY: ha
ha: ## Enable HA on three lab machines, stop each part, lose a machine, measure the outages, then move the virtual address (twenty minutes; OCADM_TEST_HA=address only moves it)
	OCADM_TEST_HA=$${OCADM_TEST_HA:-1} OCADM_TEST_REQUIRE=1 go test -count=1 -v -timeout 40m -run TestHighAvailability ./test/e2e/

.PHONY: days
days: ## Lose and replace one of three control-plane nodes on lab machines and measure the time (some minutes)
	OCADM_TEST_DAYS=1 OCADM_TEST_REQUIRE=1 go test -count=1 -v -timeout 40m -run TestControlPlaneDays ./test/e2e/

.PHONY: balancer
balancer: ## Test three control-plane nodes behind a load balancer: damaged data, a reset that would destroy the cluster, a lost machine (some minutes)
	OCADM_TEST_BALANCER=1 OCADM_TEST_REQUIRE=1 go test -count=1 -v -timeout 40m -run TestLoadBalancer ./test/e2e/

.PHONY: replica
replica: ## Lose the lab machine with the primary of the embedded database and measure the outage and lost rows (some minutes)
	OCADM_TEST_REPLICA=1 OCADM_TEST_REQUIRE=1 go test -count=1 -v -timeout 40m -run TestReplica ./test/e2e/

.PHONY: disaster
disaster: ## Lose all lab machines, restore the cloud from a backup file on others, and measure the time (some minutes)
	OCADM_TEST_DISASTER=1 OCADM_TEST_REQUIRE=1 go test -count=1 -v -timeout 40m -run TestDisaster ./test/e2e/

.PHONY: poller
poller: ## Update and roll back a cloud on lab machines while clients send requests: with two copies, no request fails (a quarter of an hour)
	OCADM_TEST_POLLER=$${OCADM_TEST_POLLER:-1} OCADM_TEST_REQUIRE=1 go test -count=1 -v -timeout 60m -run TestPoller ./test/e2e/

.PHONY: machines
machines: ## Let the operator join lab machines over SSH, three at a time, with bad machines, a power cut, removal and cloud-init (some minutes)
	OCADM_TEST_MACHINES=1 OCADM_TEST_REQUIRE=1 go test -count=1 -v -timeout 40m -run TestMachinesJoin ./test/e2e/

.PHONY: fleet
fleet: ## Build a cluster of six lab machines from one file over SSH, with bad machines, a power cut, a killed ocadm and removal (some minutes)
	OCADM_TEST_FLEET=1 OCADM_TEST_REQUIRE=1 go test -count=1 -v -timeout 40m -run 'TestFleet$$' ./test/e2e/

.PHONY: fleet-ha
fleet-ha: ## Build three control-plane nodes and a worker from one file; the operator removes and joins control-plane nodes, including a lost one (a quarter of an hour)
	OCADM_TEST_FLEET=1 OCADM_TEST_REQUIRE=1 go test -count=1 -v -timeout 60m -run 'TestFleetOfThree$$' ./test/e2e/

.PHONY: arm64
arm64: ## Test the arm64 release on this machine with QEMU (the first build takes half an hour)
	OCADM_TEST_ARM64=1 OCADM_TEST_REQUIRE=1 go test -count=1 -v -timeout 120m -run TestARM64 ./test/e2e/

.PHONY: lint
lint: ## Run golangci-lint with the import rules of docs/architecture.md
	scripts/lint.sh

.PHONY: verify
verify: generate ## Check that generated files are up to date
	git diff --exit-code -- api templates docs/reference

##@ Lab

.PHONY: lab-up
lab-up: bin/ocadm bundle ## Start NODES=2 new machines with DISTRO=bookworm (bullseye, trixie)
	go run ./test/lab up --name $(LAB) --nodes $(NODES) --distro $(DISTRO) --ocadm bin/ocadm --bundle dist/ocadm.bundle

.PHONY: lab-down
lab-down: ## Remove the machines and everything that belongs to them
	go run ./test/lab down --name $(LAB)

.PHONY: lab-shell
lab-shell: ## Open a shell on NODE=1 of LAB=default (LAB=quickstart for the quickstart)
	go run ./test/lab shell --name $(LAB) --node $(NODE)

.PHONY: apiserver
apiserver: ## Start etcd and kube-apiserver on loopback and print the kubeconfig; stop with Ctrl-C
	go run ./test/integration/apiserver

##@ Measure

.PHONY: bench
bench: ## Run the Go benchmarks of the engine
	go test -run '^$$' -bench . ./operatorctl/... ./internal/...

.PHONY: bench-init
bench-init: bin/ocadm bundle ## Compare ocadm init with plain kubeadm init with the same manifests on identical machines
	go run ./test/quickstart bench-init

.PHONY: bench-operator
bench-operator: bin/ocadm ## Measure the operator's requests, times, memory and CPU, and compare them with the goals (about 20 minutes)
	go run ./test/benchoperator -ocadm bin/ocadm

.PHONY: bench-machines
bench-machines: bin/ocadm ## Join 500 machines over SSH at the same time: time, requests per machine, operator memory (about 10 minutes)
	go run ./test/benchoperator -ocadm bin/ocadm -only machines

##@ Develop

.PHONY: image
image: bin/ocadm ## Write the operator's image to dist/ocadm-image.tar: make image REGISTRY=host/path VERSION=dev
	@mkdir -p dist
	bin/ocadm image save dist/ocadm-image.tar --name $(REGISTRY)/ocadm:$(VERSION)

.PHONY: image-push
image-push: bin/ocadm ## Push the operator's image: make image-push REGISTRY=host/path VERSION=dev
	bin/ocadm image push $(REGISTRY)/ocadm:$(VERSION)

.PHONY: deploy-dev
deploy-dev: bin/ocadm ## Run the current source as the operator of a running lab: make deploy-dev LAB=quickstart
	go run ./test/lab deploy --name $(LAB) --ocadm bin/ocadm --repository $(REGISTRY)/ocadm
