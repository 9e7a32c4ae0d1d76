// SPDX-License-Identifier: Apache-2.0

// Package kube is the API server client of the installer and the commands: manifests, server-side apply, and watch-based waits that report why they
// still wait. The operator has its own apply, which works from a cache.
package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
)

// FieldManager is the field manager of the installer and the commands.
const FieldManager = "ocadm"

// AdminKubeconfig is the kubeconfig that kubeadm creates on a control-plane node.
const AdminKubeconfig = "/etc/kubernetes/admin.conf"

// Scheme returns a scheme with the kinds of Kubernetes, custom resource definitions, and clouds.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme} {
		utilruntime.Must(add(s))
	}
	return s
}

// inCluster returns the configuration of a pod's service account; tests replace it.
var inCluster = rest.InClusterConfig

// Kubeconfig returns the kubeconfig file to use: the named one, else KUBECONFIG, else the administrator's on a control-plane node, else the user's, else
// "" in a pod, for which Config uses the service account. getenv is os.Getenv.
func Kubeconfig(named string, getenv func(string) string) (string, error) {
	if named != "" {
		return named, nil
	}
	if env := getenv("KUBECONFIG"); env != "" {
		return env, nil
	}
	tried := []string{AdminKubeconfig}
	if home := getenv("HOME"); home != "" {
		tried = append(tried, filepath.Join(home, ".kube", "config"))
	}
	if f := first(tried, func(f string) error { _, err := os.ReadFile(f); return err }); f != "" {
		return f, nil
	}
	if _, err := inCluster(); err == nil {
		return "", nil
	}
	return "", finding.New("OCA-4201", "No kubeconfig found", tried[0]+" and $HOME/.kube/config do not exist, and KUBECONFIG is not set",
		"run the command on a control-plane node, or give --kubeconfig FILE").With(tried...)
}

// first returns the first file that may be read, else the first that exists, so that the error names it; "" if none exists.
func first(files []string, read func(string) error) (found string) {
	for _, f := range files {
		err := read(f)
		if err == nil {
			return f
		} else if found == "" && !errors.Is(err, fs.ErrNotExist) {
			found = f
		}
	}
	return found
}

// Config loads a kubeconfig file, or merges several separated as in KUBECONFIG. For "", client-go uses the service account of the pod.
func Config(kubeconfig string) (*rest.Config, error) {
	rules := &clientcmd.ClientConfigLoadingRules{Precedence: filepath.SplitList(kubeconfig)}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		remedy, empty := "check the file, or give --kubeconfig FILE", clientcmd.IsEmptyConfig(err)
		if empty { // client-go names a variable that nothing here reads
			err = errors.New("current-context is not set; kubectl config get-contexts lists the contexts")
		}
		for _, f := range rules.Precedence {
			_, reading := os.ReadFile(f)
			if errors.Is(reading, fs.ErrPermission) {
				remedy = "run the command as root, or give --kubeconfig FILE"
			} else if empty && reading != nil { // client-go ignores that it does not exist
				err = reading
			}
		}
		return nil, finding.Errorf("OCA-4202", "Invalid kubeconfig "+kubeconfig, remedy, "%w", err)
	}
	return Unlimited(cfg), nil
}

// Unlimited returns a copy of the configuration without client-side rate limit: the API server's priority and fairness limits requests, and a limit
// here would only slow an installation.
func Unlimited(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = -1, 0
	cfg.WarningHandler = rest.NoWarnings{}
	return cfg
}

// New returns a client. It sends no request yet.
func New(cfg *rest.Config) (client.WithWatch, error) { return create(cfg, client.Options{}) }

// NewKnowing returns a client for short-lived programs that use few kinds. It runs API discovery only for other kinds.
func NewKnowing(cfg *rest.Config, namespaced, global []schema.GroupVersionKind) (client.WithWatch, error) {
	known := meta.NewDefaultRESTMapper(nil)
	for _, k := range namespaced {
		known.Add(k, meta.RESTScopeNamespace)
	}
	for _, k := range global {
		known.Add(k, meta.RESTScopeRoot)
	}
	web, err := rest.HTTPClientFor(Unlimited(cfg))
	if err != nil {
		return nil, fmt.Errorf("creating a client for the API server: %w", err)
	}
	others, err := apiutil.NewDynamicRESTMapper(cfg, web)
	if err != nil {
		return nil, fmt.Errorf("creating a client for the API server: %w", err)
	}
	return create(cfg, client.Options{HTTPClient: web, Mapper: meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{known, others}}})
}

// NewDryRun returns a client whose writes the API server validates but does not persist.
func NewDryRun(cfg *rest.Config) (client.WithWatch, error) {
	return create(cfg, client.Options{DryRun: new(true)})
}

func create(cfg *rest.Config, o client.Options) (client.WithWatch, error) {
	o.Scheme = Scheme()
	c, err := client.NewWithWatch(Unlimited(cfg), o)
	if err != nil {
		return nil, fmt.Errorf("creating a client for the API server: %w", err)
	}
	return c, nil
}

// Readyz requests /readyz from an API server. status is 0 if there is no response.
func Readyz(ctx context.Context, cfg *rest.Config) (status int, err error) {
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return 0, fmt.Errorf("creating a client: %w", err)
	}
	defer client.CloseIdleConnections()
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return 0, fmt.Errorf("reading the address of the API server: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("readyz").String(), nil)
	if err != nil {
		return 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close() // the body has been read
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("/readyz answered %d", resp.StatusCode)
	}
	return resp.StatusCode, err
}

// Load combines Kubeconfig and Config.
func Load(named string, getenv func(string) string) (*rest.Config, error) {
	file, err := Kubeconfig(named, getenv)
	if err != nil {
		return nil, err
	}
	return Config(file)
}

// Open combines Load and New.
func Open(named string, getenv func(string) string) (client.WithWatch, error) {
	cfg, err := Load(named, getenv)
	if err != nil {
		return nil, err
	}
	return New(cfg)
}
