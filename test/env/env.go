// SPDX-License-Identifier: Apache-2.0

// Package env runs clouds for integration tests, the crash sweep and the benchmark: a real etcd, kube-apiserver and MariaDB, an operator in this
// process, and a stand-in that makes workloads available. The tests of a package share the control plane and the database server. Each test starts
// with an empty namespace and an empty database server.
package env

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/integration/instant"
	"yunion.io/x/ocadm/test/integration/pods"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

const (
	// Namespace is the namespace of the operator, and of the cloud in a test that has only one.
	Namespace = "onecloud"
	// Name is the name of every cloud.
	Name = "default"
	// OperatorUser is the operator's name in the audit log.
	OperatorUser = "system:serviceaccount:" + Namespace + ":onecloud-operator"
)

// Patience limits every wait. It is long, because the machine may be busy.
var Patience = 4 * time.Minute

// T is the part of testing.T that an environment needs. The benchmark, which is not a test, implements it too.
type T interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Failed() bool
	Log(...any)
	Logf(string, ...any)
	Error(...any)
	Errorf(string, ...any)
	Fatal(...any)
	Fatalf(string, ...any)
}

// Workloads selects what makes the workloads of a cloud available.
type Workloads string

const (
	// Instant reports every workload available immediately. There are no pods; package instant plays the services in this process.
	Instant Workloads = ""
	// Programs runs the programs of Deployments (package pods), and reports all other workloads available immediately.
	Programs Workloads = "programs"
	// Pods leaves workloads to Kubernetes' own controllers and reports their pods ready immediately. Package instant plays the services.
	Pods Workloads = "pods"
)

// controllers are the arguments of kube-controller-manager for each kind of workloads.
var controllers = map[Workloads]string{
	Programs: "--controllers=-deployment-controller,-replicaset-controller,-statefulset-controller,-daemonset-controller,-endpoints-controller," +
		"-endpointslice-controller,-endpointslice-mirroring-controller,-persistentvolume-binder-controller,-job-controller",
	Pods: "--controllers=*,-persistentvolume-binder-controller,-node-lifecycle-controller,-taint-eviction-controller",
}

// reported lists the kinds whose status the instant kubelet reports.
var reported = map[Workloads][]string{
	Instant:  harness.Workloads,
	Programs: {"StatefulSet", "DaemonSet", "Job", "PersistentVolumeClaim", "Pull"},
	Pods:     {"Pod", "PersistentVolumeClaim"},
}

// Options are the options of an environment. The zero value is usable.
type Options struct {
	Workloads Workloads
	// Collect starts kube-controller-manager for its garbage collector even with instant workloads; the others always have it.
	Collect bool
	// APIServer and Controllers are additional arguments of kube-apiserver and kube-controller-manager.
	APIServer, Controllers []string
	// Jobs leaves Jobs to Kubernetes' own controller. The test must run their pods.
	Jobs bool
	// Agents also runs the pods of DaemonSets as programs. It requires Programs.
	Agents bool
	// Database, if set, starts a separate database server for the test.
	Database *mariadb.Options
}

// Env is the environment of one test.
type Env struct {
	T
	Cluster *harness.Cluster
	Client  client.WithWatch
	DB      *mariadb.Server
	Kubelet *harness.Kubelet
	// Pods runs programs; nil if there are none.
	Pods *pods.Kubelet
	// Services are played in this process; nil with Programs.
	Services *instant.Services
	Counters *harness.Counters
	// Namespace is the namespace of the cloud that the methods use.
	Namespace string

	workloads Workloads
	agents    bool
	operator  *operator
}

// In returns the environment for a part of a test.
func (e *Env) In(t T) *Env {
	c := *e
	c.T = t
	return &c
}

// At returns the environment for a cloud in another namespace.
func (e *Env) At(namespace string) *Env {
	c := *e
	c.Namespace = namespace
	return &c
}

// New returns an environment without a cloud.
func New(t T, o Options) *Env {
	t.Helper()
	p, err := running.plane(t.Context(), o)
	require.NoError(t, err)
	e := &Env{T: t, Cluster: p.cluster, Client: p.client, Namespace: Namespace, workloads: o.Workloads, agents: o.Agents,
		Counters: &harness.Counters{}, operator: &operator{}}
	e.database(o.Database)
	e.restore()
	kinds := slices.DeleteFunc(slices.Clone(reported[o.Workloads]), func(kind string) bool {
		return o.Agents && kind == "DaemonSet" || o.Jobs && kind == "Job"
	})
	e.Kubelet, err = p.cluster.StartKubelet(context.WithoutCancel(t.Context()), kinds,
		harness.Node{Name: "node1", Labels: map[string]string{"onecloud.yunion.io/controller": "enable", "onecloud.yunion.io/host": "enable"}})
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := e.Kubelet.Stop(); err != nil {
			t.Errorf("the instant kubelet: %v", err)
		}
	})
	if o.Workloads == Programs {
		e.programs()
	} else {
		e.Services = &instant.Services{Client: p.client}
		t.Cleanup(e.Services.Close)
	}
	t.Cleanup(e.StopOperator)
	t.Cleanup(func() {
		if t.Failed() {
			e.explain()
		}
	})
	return e
}

// database gives the test the shared server, emptied, or a separate one.
func (e *Env) database(own *mariadb.Options) {
	e.Helper()
	var err error
	if own == nil {
		e.DB, err = running.database(e.Context())
	} else if e.DB, err = mariadb.Start(e.Context(), "", *own); err == nil {
		e.Cleanup(func() { _ = e.DB.Close() })
	}
	if s, ok := e.T.(interface{ Skip(...any) }); ok && errors.Is(err, mariadb.ErrNotInstalled) && os.Getenv("OCADM_TEST_REQUIRE") != "1" {
		s.Skip(err)
	}
	e.Must(err)
}

// programs starts the kubelet that runs Deployments.
func (e *Env) programs() {
	e.Helper()
	var err error
	e.Pods, err = pods.Start(context.WithoutCancel(e.Context()), pods.Options{Config: e.Cluster.Config(harness.Admin), Namespace: e.Namespace, Node: "node1", Agents: e.agents})
	e.Must(err)
	e.Cleanup(func() {
		if err := e.Pods.Close(); err != nil {
			e.Errorf("the kubelet of programs: %v", err)
		}
	})
}

// MoveTo stops the programs and runs those of another namespace instead.
func (e *Env) MoveTo(namespace string) *Env {
	e.Helper()
	if err := e.Pods.Close(); err != nil {
		e.Errorf("the kubelet of programs: %v", err)
	}
	other := e.At(namespace)
	other.programs()
	return other
}

// started holds what the tests of a process share.
type started struct {
	mu     sync.Mutex
	dir    string
	planes map[string]*plane
	db     *mariadb.Server
}

// plane is a control plane.
type plane struct {
	cluster *harness.Cluster
	client  client.WithWatch
}

var running started

// Main runs the tests of a package and then stops what they shared. With AsProgram it acts as ocadm instead.
func Main(m interface{ Run() int }) {
	runAsProgram()
	log.SetOutput(io.Discard) // the services log every request
	debug.SetGCPercent(400)
	code := m.Run()
	if err := Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// Close stops what environments share.
func Close() error {
	var errs []error
	for _, p := range running.planes {
		errs = append(errs, p.cluster.Close())
	}
	if running.db != nil {
		errs = append(errs, running.db.Close())
	}
	if running.dir != "" {
		errs = append(errs, os.RemoveAll(running.dir))
	}
	running = started{}
	return errors.Join(errs...)
}

func (s *started) directory() (err error) {
	if s.dir == "" {
		s.dir, err = os.MkdirTemp("", "ocadm-env-")
	}
	return err
}

func (s *started) database(ctx context.Context) (*mariadb.Server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.directory()
	if s.db == nil && err == nil {
		s.db, err = mariadb.Start(ctx, s.dir, mariadb.Options{Args: []string{"--max-connections=2000"}})
	}
	return s.db, err
}

// plane returns the control plane with these options, starting it if necessary.
func (s *started) plane(ctx context.Context, o Options) (*plane, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.directory(); err != nil {
		return nil, err
	}
	manager, api := append([]string{}, o.Controllers...), o.APIServer
	switch {
	case o.Workloads == Pods:
		manager = append([]string{controllers[Pods]}, manager...)
	case o.Workloads == Programs || o.Collect:
		which := controllers[Programs]
		if o.Jobs {
			which = strings.Replace(which, "-job-controller", "job-controller", 1)
		}
		manager = append([]string{which}, manager...)
	default: // nothing takes the finalizers off claims, and nothing makes service accounts
		api = append([]string{"--disable-admission-plugins=StorageObjectInUseProtection,ServiceAccount"}, api...)
	}
	key := fmt.Sprintf("%q %q", api, manager)
	if p := s.planes[key]; p != nil {
		return p, nil
	}
	p, err := startPlane(ctx, harness.Options{Dir: s.dir, APIServerArgs: api}, manager)
	if err != nil {
		return nil, err
	}
	if s.planes == nil {
		s.planes = map[string]*plane{}
	}
	s.planes[key] = p
	return p, nil
}

func startPlane(ctx context.Context, o harness.Options, manager []string) (p *plane, err error) {
	p = &plane{}
	if p.cluster, err = harness.Start(ctx, o); err != nil {
		return nil, err
	}
	if p.client, err = kube.New(p.cluster.Config(harness.Admin)); err == nil {
		err = p.define(ctx)
	}
	if err == nil && len(manager) > 0 { // its garbage collector learns immediately only of kinds that exist when it starts
		err = p.cluster.StartControllerManager(ctx, manager...)
	}
	if err != nil {
		return nil, errors.Join(err, p.cluster.Close())
	}
	return p, nil
}

// define applies the installer's objects for an operator, except the operator itself, which runs in the test.
func (p *plane) define(ctx context.Context) error {
	for _, dir := range []string{"operator/deployment", "operator/rbac", "operator/namespace", "operator/crds"} {
		objs, err := harness.OperatorManifests(dir, Namespace, Namespace)
		if err != nil {
			return err
		}
		if _, err := kube.Apply(ctx, p.client, "ocadm", objs...); err != nil {
			return err
		}
	}
	// The API server lists a new kind a moment after its definition is established.
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	err := wait.Until(ctx, "kind OnecloudCluster", 20*time.Millisecond, func(context.Context) (bool, string, error) {
		_, err := p.client.RESTMapper().RESTMapping(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind).GroupKind(), v1alpha1.GroupVersion.Version)
		return err == nil, "", err
	}, func(string) {})
	if err != nil {
		return err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "default"}}
	return client.IgnoreAlreadyExists(p.client.Create(ctx, account))
}
