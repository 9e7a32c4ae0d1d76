// SPDX-License-Identifier: Apache-2.0

// Package pods is a kubelet of processes: it runs the Deployments of a namespace as processes of this machine, against a real API
// server and without a container runtime. The static stand-in (test/fakecloud) plays every program in /opt/yunion/bin. Each pod has a
// directory as its root, a mount namespace with its volumes, a host name, /etc/hosts with every Service, restarts with back-off,
// probes, a Pod object and a log.
//
// Everything shares loopback, so a pod listens on 127.0.0.1 at its own port, a Service is an entry in /etc/hosts, and there is one
// process for each container however many replicas are asked for; the old pod is gone before the new one starts, whatever the
// strategy. A container whose program is not in /opt/yunion/bin (the console's nginx, for one) is called ready and nothing runs.
// Liveness probes, resources, security contexts and updates of mounted files in a running pod are not looked at. It is test code.
package pods

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	_ "yunion.io/x/ocadm/test/fakecloud/program" // what Build builds: go test must know that results depend on it
)

// Agent is the user agent of the kubelet: leave it out of counts.
const Agent = "process-kubelet"

// ErrNotPermitted says that this user may not make mount namespaces.
var ErrNotPermitted = errors.New("running pods as processes takes root (mount namespaces, chroot)")

// Options of a kubelet.
type Options struct {
	// Config is how it reaches the API server, as somebody who may do everything.
	Config *rest.Config
	// Namespace whose Deployments it runs.
	Namespace string
	// Node is the name of the node in its Pod objects.
	Node string
	// Program is the static stand-in, see Build.
	Program string
	// Dir is where everything lies; a temporary directory when empty. Close removes what Start made in it.
	Dir string
}

// Kubelet runs pods.
type Kubelet struct {
	options Options
	client  kubernetes.Interface
	dir     string
	names   names
	cancel  context.CancelFunc
	stop    func()
	workers sync.WaitGroup

	mu        sync.Mutex
	workloads map[string]*workload
	serial    int
	errs      []error
}

// Build builds the stand-in into a directory and returns its path.
func Build(ctx context.Context, dir string) (string, error) {
	program := filepath.Join(dir, "fakecloud")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "yunion.io/x/ocadm/test/fakecloud")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the stand-in: %w\n%s", err, out)
	}
	return program, nil
}

// Start starts to run pods. ctx bounds its life; Close ends it before.
func Start(ctx context.Context, o Options) (*Kubelet, error) {
	if err := permitted(); err != nil {
		return nil, err
	}
	config := rest.CopyConfig(o.Config)
	config.UserAgent, config.QPS = Agent, -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	dir, err := os.MkdirTemp(o.Dir, "pods-")
	if err != nil {
		return nil, fmt.Errorf("making a directory: %w", err)
	}
	k := &Kubelet{options: o, client: client, dir: dir, workloads: map[string]*workload{}, names: names{file: filepath.Join(dir, "hosts")}}
	ctx, k.cancel = context.WithCancel(ctx)
	if err := k.start(ctx); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

func (k *Kubelet) start(ctx context.Context) error {
	if err := k.names.start(); err != nil {
		return err
	}
	// Pods need this account to exist; elsewhere a controller makes it.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	_, err := k.client.CoreV1().ServiceAccounts(k.options.Namespace).Create(ctx, account, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the default service account: %w", err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(k.client, 0, informers.WithNamespace(k.options.Namespace))
	k.stop = factory.Shutdown
	service := func(object any) {
		if s, ok := object.(*corev1.Service); ok {
			k.note(k.names.add(s.Name, s.Namespace))
		}
	}
	services := factory.Core().V1().Services().Informer()
	if _, err := services.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: service, UpdateFunc: func(_, object any) { service(object) },
	}); err != nil {
		return fmt.Errorf("watching services: %w", err)
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), services.HasSynced) {
		return errors.New("reading services: stopped")
	}
	want := func(object any) {
		if d, ok := object.(*appsv1.Deployment); ok {
			k.want(ctx, d)
		}
	}
	if _, err := factory.Apps().V1().Deployments().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: want, UpdateFunc: func(_, object any) { want(object) }, DeleteFunc: func(object any) { k.gone(object) },
	}); err != nil {
		return fmt.Errorf("watching deployments: %w", err)
	}
	factory.Start(ctx.Done())
	return nil
}

// Close ends every pod, removes every file and returns what went wrong in the kubelet itself. It may be called more than once.
func (k *Kubelet) Close() error {
	k.cancel()
	if k.stop != nil {
		k.stop()
	}
	k.workers.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	errs := append(k.errs, os.RemoveAll(k.dir))
	k.errs = nil
	return errors.Join(errs...)
}

// Dial is the way of somebody outside the cluster to its Services: their names lead to loopback, where their pods listen.
func (k *Kubelet) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if net.ParseIP(host) == nil && host != "localhost" {
		if !k.names.known(host) {
			return nil, &net.DNSError{Err: "no such service", Name: host, IsNotFound: true}
		}
		host = "127.0.0.1"
	}
	return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, net.JoinHostPort(host, port))
}

// Log is what the containers of a Deployment printed, pods that are gone included.
func (k *Kubelet) Log(name string) string {
	data, err := os.ReadFile(k.logFile(name))
	if err != nil {
		return ""
	}
	return string(data)
}

// Logs is Log of every Deployment that ever was.
func (k *Kubelet) Logs() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := map[string]string{}
	for name := range k.workloads {
		all[name] = k.Log(name)
	}
	return all
}

// Kill ends the processes of a Deployment as a crash would.
func (k *Kubelet) Kill(name string) {
	k.mu.Lock()
	w := k.workloads[name]
	k.mu.Unlock()
	if w != nil {
		w.kill()
	}
}

// Starts is how many processes of a Deployment have been started, init containers and restarts included.
func (k *Kubelet) Starts(name string) int {
	k.mu.Lock()
	w := k.workloads[name]
	k.mu.Unlock()
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.starts
}

// Claim is the directory that is the volume of a claim.
func (k *Kubelet) Claim(name string) string { return filepath.Join(k.dir, "claims", name) }

func (k *Kubelet) logFile(name string) string { return filepath.Join(k.dir, name+".log") }

func (k *Kubelet) want(ctx context.Context, d *appsv1.Deployment) {
	if ctx.Err() != nil {
		return
	}
	k.mu.Lock()
	w := k.workloads[d.Name]
	if w == nil {
		w = &workload{k: k, name: d.Name, wake: make(chan struct{}, 1)}
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
	d, ok := object.(*appsv1.Deployment)
	if !ok {
		return
	}
	k.mu.Lock()
	w := k.workloads[d.Name]
	k.mu.Unlock()
	if w != nil {
		w.set(nil)
	}
}

// note keeps an error for Close.
func (k *Kubelet) note(err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.errs = append(k.errs, err)
}

// podName gives each pod another name.
func (k *Kubelet) podName(workload string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.serial++
	return fmt.Sprintf("%s-%04d", workload, k.serial)
}
