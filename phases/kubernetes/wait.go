// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/kubernetes/cmd/kubeadm/app/constants"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

const (
	// startPatience is how long a wait may go on without a change in the answer or the containers' states.
	startPatience = 4 * time.Minute
	probeInterval = 150 * time.Millisecond
	probeTimeout  = 2 * time.Second
	// lookInterval is how often a wait checks the containers, and whether it can still succeed.
	lookInterval = 5 * time.Second
)

// waitControlPlanePhase waits instead of kubeadm: it polls more often, reports what it waits for, gives up early on what cannot succeed, and explains.
func waitControlPlanePhase() host.Phase {
	return host.Phase{
		Name: "wait-control-plane", Short: "Wait for the control plane to answer", After: []string{"kubelet-start", "etcd", "control-plane"},
		Phases: slices.Concat([]host.Phase{
			after(stalePodsPhase(), "wait-control-plane/kubelet"),
			waitPhase("kubelet", "Wait for the kubelet", probeKubelet, always(hopelessKubelet), diagnoseKubelet),
			waitPhase("apiserver-listening", "Wait for the API server's first answer", probeAPIServerSpeaks, hopelessAPIServer,
				diagnosePod(constants.KubeAPIServer, constants.Etcd)),
			waitPhase("apiserver", "Wait for etcd and the API server", probeAPIServer, hopelessAPIServer,
				diagnosePod(constants.KubeAPIServer, constants.Etcd)),
			after(waitPhase("endpoint", "Wait for the API server at the endpoint of the cluster", probeEndpoint, always(hopelessKubelet), diagnoseEndpoint),
				"wait-control-plane/apiserver"),
		}, managerPhases(), []host.Phase{administratorPhase()}),
	}
}

// stalePodsPhase completes a run after one that failed with other manifests. A kubelet that has never reached its API server keeps and restarts the pods that it
// knows, whatever their manifests say by now.
func stalePodsPhase() host.Phase {
	return host.Phase{
		Name: "static-pods", Short: "Restart static pods that still run with an earlier manifest", After: []string{}, Timeout: staticPodTimeout,
		Run: func(ctx context.Context, h *host.Host, r workflow.Reporter) error {
			stale, err := stalePods(ctx, h)
			if err != nil || len(stale) == 0 {
				return err
			}
			if err := StopStaticPods(ctx, h, r, stale...); err != nil {
				return err
			}
			return StartStaticPods(h, r, stale...)
		},
	}.Todo(func(ctx context.Context, h *host.Host) ([]string, error) {
		stale, err := stalePods(ctx, h)
		return workflow.Lines("restart static pod ", stale), err
	})
}

// managerPhases wait for components that work through the API server.
func managerPhases() []host.Phase {
	return []host.Phase{
		waitPhase("controller-manager", "Wait for the controller manager", probePod(constants.KubeControllerManager), always(nil),
			diagnosePod(constants.KubeControllerManager)),
		waitPhase("scheduler", "Wait for the scheduler", probePod(constants.KubeScheduler), always(nil), diagnosePod(constants.KubeScheduler)),
	}
}

// probe returns why something does not answer yet, "" if it does.
type probe func(context.Context, *host.Host) string

// hopeless reports whether a wait can no longer succeed; nil means that it always can.
type hopeless func(context.Context, *host.Host) bool

// always wraps a hopeless that does not need the state at the start of the wait.
func always(f hopeless) func(*host.Host) hopeless { return func(*host.Host) hopeless { return f } }

// diagnose explains why something never started; it never returns nil.
type diagnose func(context.Context, *host.Host, error) finding.Finding

func waitPhase(name, short string, p probe, begin func(*host.Host) hopeless, d diagnose) host.Phase {
	return host.Phase{
		Name: name, Short: short, After: []string{}, Patience: startPatience,
		Check: func(ctx context.Context, h *host.Host) (bool, error) { return p(ctx, h) == "", nil },
		Run: func(ctx context.Context, h *host.Host, r workflow.Reporter) error {
			return await(ctx, h, r, name, p, begin(h), d)
		},
	}
}

// await waits until p returns "" or ctx ends, which the runner ends when the reports no longer change.
func await(ctx context.Context, h *host.Host, r workflow.Reporter, what string, p probe, hopeless hopeless, d diagnose) error {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	last, states, looked := "", "", time.Now()
	for {
		why := p(ctx, h)
		if why == "" {
			return nil
		}
		if time.Since(looked) > lookInterval {
			looked, states = time.Now(), containerStates(ctx, h)
			if hopeless != nil && hopeless(ctx, h) {
				return explained(ctx, h, d, errors.New(why))
			}
		}
		if now := why + states; now != last {
			r.Waiting(what, now)
			last = now
		}
		select {
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
				return cause
			}
			return explained(ctx, h, d, fmt.Errorf("%s: %w", last, context.Cause(ctx)))
		case <-tick.C:
		}
	}
}

// evidenceTimeout bounds the gathering of evidence, which continues after the phase's time is up.
const evidenceTimeout = 15 * time.Second

func explained(ctx context.Context, h *host.Host, d diagnose, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), evidenceTimeout)
	defer cancel()
	return d(ctx, h, cause)
}

func probeKubelet(ctx context.Context, _ *host.Host) string {
	return Probe(ctx, nil, fmt.Sprintf("http://127.0.0.1:%d/healthz", constants.KubeletHealthzPort))
}

// probeAPIServerSpeaks accepts any answer: a kubelet can register its node long before all roles exist.
func probeAPIServerSpeaks(ctx context.Context, h *host.Host) string {
	why := probeAPIServer(ctx, h)
	if strings.Contains(why, answers) {
		return ""
	}
	return why
}

func probeAPIServer(ctx context.Context, h *host.Host) string {
	return probeAt(ctx, h, LocalEndpoint(h))
}

// probeEndpoint probes the address in the kubeconfigs: through a load balancer, or at the virtual address.
func probeEndpoint(ctx context.Context, h *host.Host) string {
	return probeAt(ctx, h, controlPlaneEndpoint(h.Config))
}

// AwaitEndpoint waits until the API server answers at the address in the kubeconfigs.
func AwaitEndpoint(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	return await(ctx, h, r, "endpoint", probeEndpoint, hopelessKubelet, diagnoseEndpoint)
}

// EndpointAnswers reports whether the API server answers at the address in the kubeconfigs.
func EndpointAnswers(ctx context.Context, h *host.Host) bool { return probeEndpoint(ctx, h) == "" }

func diagnoseEndpoint(_ context.Context, h *host.Host, cause error) finding.Finding {
	remedy := "check that the load balancer forwards to " + LocalEndpoint(h) + ", then run the same command again"
	if h.Config.Cluster.VirtualAddress != "" {
		remedy = fmt.Sprintf("look at %s/kube-system_ocadm-vip-%s_*/, then run the same command again", podLogsDir, h.Config.Node.Name)
	}
	return finding.Errorf("OCA-4139", "The API server does not answer at the endpoint of the cluster, "+controlPlaneEndpoint(h.Config), remedy, "%w", cause)
}

func probeAt(ctx context.Context, h *host.Host, endpoint string) string {
	ca, err := h.Files.ReadFile(pkiDir + "/ca.crt")
	if err != nil {
		return "there is no certificate authority yet"
	}
	return Probe(ctx, pinned(ca), "https://"+endpoint+"/readyz")
}

// probePod checks whether a static pod of this machine is healthy. It does not probe etcd: the API server is healthy only with it.
func probePod(name string) probe {
	switch name {
	case constants.KubeAPIServer:
		return probeAPIServer
	case constants.KubeControllerManager:
		return probeLocal(constants.KubeControllerManagerPort, "healthz")
	case constants.KubeScheduler:
		return probeLocal(constants.KubeSchedulerPort, "livez")
	}
	return func(context.Context, *host.Host) string { return "" }
}

func probeLocal(port int, path string) probe {
	return func(ctx context.Context, _ *host.Host) string {
		// The component serves its health on the loopback with a certificate generated at startup: there is nothing to verify it against.
		return Probe(ctx, &tls.Config{InsecureSkipVerify: true}, fmt.Sprintf("https://127.0.0.1:%d/%s", port, path))
	}
}

const answers = " answers "

// Probe requests the health of a server on this machine, and returns why it is unhealthy, "" if it is healthy. The TLS configuration may be nil.
func Probe(ctx context.Context, c *tls.Config, url string) string {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err.Error()
	}
	resp, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}}).Do(req)
	if err != nil {
		if strings.Contains(err.Error(), "connection refused") {
			return url + " refuses connections"
		}
		if errors.Is(err, context.DeadlineExceeded) {
			return url + " does not answer"
		}
		return err.Error()
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return ""
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
	return fmt.Sprintf("%s%s%d%s", url, answers, resp.StatusCode, failedChecks(body))
}

// failedChecks returns the names of the health checks that a component reports as failing.
func failedChecks(body []byte) string {
	var names []string
	for line := range strings.Lines(string(body)) {
		if name, ok := strings.CutPrefix(line, "[-]"); ok {
			name, _, _ = strings.Cut(name, " ")
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return ": " + strings.Join(names, ", ")
}

// manyRestarts is the number of restarts, of the kubelet by systemd or of a container by the kubelet, after which a wait gives up.
const manyRestarts = 5

// hopelessKubelet reports whether the kubelet keeps dying, so that it will start nothing.
func hopelessKubelet(ctx context.Context, h *host.Host) bool {
	if probeKubelet(ctx, h) == "" {
		return false
	}
	res, err := h.Systemctl(ctx, "show", "kubelet", "-p", "NRestarts", "-p", "LoadState")
	if err != nil {
		return false
	}
	if strings.Contains(res.Stdout, "LoadState=not-found") || strings.Contains(res.Stdout, "LoadState=masked") {
		return true
	}
	var n int
	for line := range strings.Lines(res.Stdout) {
		if _, err := fmt.Sscanf(line, "NRestarts=%d", &n); err == nil {
			return n >= manyRestarts
		}
	}
	return false
}

// hopelessAPIServer reports whether the kubelet keeps dying, or etcd or the API server has since the wait began.
func hopelessAPIServer(h *host.Host) hopeless {
	components := []string{constants.Etcd, constants.KubeAPIServer}
	before := map[string]int{}
	for _, c := range components {
		_, before[c] = newestLog(h, c)
	}
	return func(ctx context.Context, h *host.Host) bool {
		for _, c := range components {
			if _, restarts := newestLog(h, c); restarts-before[c] >= manyRestarts {
				return true
			}
		}
		return hopelessKubelet(ctx, h)
	}
}

func kubeletActive(ctx context.Context, h *host.Host) bool {
	_, err := h.Systemctl(ctx, "is-active", "--quiet", "kubelet")
	return err == nil
}
