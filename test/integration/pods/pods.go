// SPDX-License-Identifier: Apache-2.0

// Package pods is a kubelet without a container runtime: it runs the Deployments of a namespace in this process, against a real API server. Package
// test/fakecloud/program plays every program in /opt/yunion/bin, with a goroutine for each container. A container has a directory with its volumes as
// its root, an environment, a host name, restarts with back-off and a readiness probe. A pod has a Pod object.
//
// All pods are on loopback, in a network that no other kubelet of this machine has. The pods of Deployments share an address, each with its own port,
// to which the name of a Service leads. Each container runs once, whatever the number of replicas, and the old pod ends before the new one starts,
// whatever the strategy. A container whose program is not in /opt/yunion/bin (such as the console's nginx) is reported ready and runs nothing.
// Liveness probes, resources, security contexts, read-only mounts and updates of mounted files in a running pod are ignored: the lab tests those.
//
// It also runs a pod that others create and no scheduler has bound. Such a pod has its own address, runs its containers once, and resolves other hosts by its aliases.
//
// With Options.Agents it also runs pods of DaemonSets. Their programs do only what a rollout needs: they keep running, or end if their release is broken.
package pods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/test/fakecloud/servicespec"
	"yunion.io/x/ocadm/test/integration/harness"
)

// Agent is the user agent of the kubelet; exclude it from counts.
const Agent = "program-kubelet"

// Options are the options of a kubelet.
type Options struct {
	// Config is the configuration for the API server, with all permissions.
	Config *rest.Config
	// Namespace is the namespace of the Deployments.
	Namespace string
	// Node is the node name in its Pod objects.
	Node string
	// Agents also runs DaemonSets.
	Agents bool
	// Dir is the parent directory of all files; the default is the directory for temporary files. Close removes what Start created in it.
	Dir string
}

// Kubelet runs pods.
type Kubelet struct {
	options  Options
	client   client.Client
	dir      string
	services corev1listers.ServiceNamespaceLister
	log      harness.Log
	// network is the second byte of its addresses, reserved until taken is closed.
	network int
	taken   net.Listener
	cancel  context.CancelFunc
	stop    func()
	workers sync.WaitGroup

	mu        sync.Mutex
	workloads map[string]*workload
	bare      map[types.UID]*pod
	published map[string]string
	serial    int
	errs      []error
}

// Start starts running pods, whose programs log with package log. They run until ctx ends or Close is called.
func Start(ctx context.Context, o Options) (*Kubelet, error) {
	config := rest.CopyConfig(o.Config)
	config.UserAgent, config.QPS = Agent, -1
	writer, err := client.New(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	reader, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	dir, err := os.MkdirTemp(o.Dir, "pods-")
	if err != nil {
		return nil, fmt.Errorf("making a directory: %w", err)
	}
	k := &Kubelet{options: o, client: writer, dir: dir, workloads: map[string]*workload{}, bare: map[types.UID]*pod{}, published: map[string]string{}}
	if k.network, k.taken, err = network(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	log.SetOutput(&k.log)
	ctx, k.cancel = context.WithCancel(ctx)
	if err := k.start(ctx, reader); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

// network reserves a network 127.N.0.0/16 that no other kubelet of this machine has, with a socket in Linux' abstract namespace.
func network(ctx context.Context) (n int, taken net.Listener, err error) {
	for n = 2; n < 255; n++ {
		if taken, err = (&net.ListenConfig{}).Listen(ctx, "unix", fmt.Sprintf("@ocadm-test-pods-%d", n)); err == nil {
			return n, taken, nil
		}
	}
	return 0, nil, fmt.Errorf("finding addresses for pods: %w", err)
}

// address returns one of its addresses; 0 is that of the pods of Deployments.
func (k *Kubelet) address(serial int) string {
	return fmt.Sprintf("127.%d.%d.%d", k.network, serial/200, 1+serial%200)
}

func (k *Kubelet) start(ctx context.Context, reader kubernetes.Interface) error {
	factory := informers.NewSharedInformerFactoryWithOptions(reader, 0, informers.WithNamespace(k.options.Namespace))
	k.stop = factory.Shutdown
	k.services = factory.Core().V1().Services().Lister().Services(k.options.Namespace)
	want := func(object any) {
		if d, ok := object.(*appsv1.Deployment); ok {
			k.want(ctx, d, false)
		}
	}
	if _, err := factory.Apps().V1().Deployments().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: want, UpdateFunc: func(_, object any) { want(object) }, DeleteFunc: func(object any) { k.gone(object) },
	}); err != nil {
		return fmt.Errorf("watching deployments: %w", err)
	}
	if k.options.Agents {
		if err := k.watchAgents(ctx, factory); err != nil {
			return err
		}
	}
	if err := k.watchBare(ctx, factory); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return nil
}

// Close ends every pod, removes every file and returns the kubelet's own errors. It may be called more than once.
func (k *Kubelet) Close() error {
	k.cancel()
	if k.stop != nil {
		k.stop()
	}
	k.workers.Wait()
	log.SetOutput(io.Discard)
	k.mu.Lock()
	defer k.mu.Unlock()
	_ = k.taken.Close() // it may have been closed
	errs := append(k.errs, os.RemoveAll(k.dir))
	k.errs = nil
	return errors.Join(errs...)
}

// Dial connects to Services of the cluster: it resolves their names to where their pods listen.
func (k *Kubelet) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if net.ParseIP(host) == nil && host != "localhost" {
		name, domain, _ := strings.Cut(host, ".")
		ns := k.options.Namespace
		_, err := k.services.Get(name)
		if err != nil || !slices.Contains([]string{"", ns, ns + ".svc", ns + ".svc.cluster.local"}, domain) {
			return nil, &net.DNSError{Err: "no such service", Name: host, IsNotFound: true}
		}
		host = k.address(0)
	}
	return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, net.JoinHostPort(host, port))
}

// Publish replaces the program in an image by another version, for example a broken or a repaired one. It affects later starts.
func (k *Kubelet) Publish(image, version string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.published[image] = version
}

// version returns the version of the program in an image: its tag, unless something else was published.
func (k *Kubelet) version(image string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return cmp.Or(k.published[image], servicespec.Version(image))
}

// Log returns the output of all programs.
func (k *Kubelet) Log() string { return k.log.String() }

// Kill kills the programs of a Deployment, as in a crash.
func (k *Kubelet) Kill(name string) {
	if w := k.workload(name); w != nil {
		w.kill()
	}
}

func (k *Kubelet) workload(name string) *workload {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.workloads[name]
}

// Starts returns how many programs of a Deployment have been started, including init containers and restarts.
func (k *Kubelet) Starts(name string) int {
	w := k.workload(name)
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.starts
}

// Claim returns the directory that is the volume of a claim.
func (k *Kubelet) Claim(name string) string { return filepath.Join(k.dir, "claims", name) }

func (k *Kubelet) want(ctx context.Context, d *appsv1.Deployment, agent bool) {
	if ctx.Err() != nil {
		return
	}
	k.mu.Lock()
	w := k.workloads[d.Name]
	if w == nil {
		w = &workload{k: k, name: d.Name, agent: agent, wake: make(chan struct{}, 1)}
		k.workloads[d.Name] = w
		k.workers.Go(func() { w.run(ctx) })
	}
	k.mu.Unlock()
	if d.DeletionTimestamp != nil {
		d = nil
	}
	w.set(d)
}

func (k *Kubelet) gone(object any) {
	if d, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = d.Obj
	}
	if d, ok := object.(client.Object); ok {
		if w := k.workload(d.GetName()); w != nil {
			w.set(nil)
		}
	}
}

// note records an error for Close.
func (k *Kubelet) note(err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.errs = append(k.errs, err)
}

// podName returns a unique name for a pod.
func (k *Kubelet) podName(workload string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.serial++
	return fmt.Sprintf("%s-%04d", workload, k.serial)
}
