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
	// startPatience is how long a wait goes on in which neither an answer nor the state of a container changes.
	startPatience = 4 * time.Minute
	probeInterval = 150 * time.Millisecond
	probeTimeout  = 2 * time.Second
	// lookInterval is how often a wait looks at the containers, and whether it can still succeed.
	lookInterval = 5 * time.Second
)

// waitControlPlanePhase waits natively instead of by kubeadm: it asks oftener, says what it waits for, gives up early on what cannot
// succeed, and explains.
func waitControlPlanePhase() host.Phase {
	return host.Phase{
		Name: "wait-control-plane", Short: "Wait for the control plane to answer", After: []string{"kubelet-start", "etcd", "control-plane"},
		Phases: slices.Concat([]host.Phase{
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

// managerPhases wait for what works through the API server.
func managerPhases() []host.Phase {
	return []host.Phase{
		waitPhase("controller-manager", "Wait for the controller manager", probePod(constants.KubeControllerManager), always(nil),
			diagnosePod(constants.KubeControllerManager)),
		waitPhase("scheduler", "Wait for the scheduler", probePod(constants.KubeScheduler), always(nil), diagnosePod(constants.KubeScheduler)),
	}
}

// probe says why something does not answer yet, "" when it does.
type probe func(context.Context, *host.Host) string

// hopeless reports whether what is waited for can come no more; nil means that it always can.
type hopeless func(context.Context, *host.Host) bool

// always is a hopeless that needs not know how things were when the wait began.
func always(f hopeless) func(*host.Host) hopeless { return func(*host.Host) hopeless { return f } }

// diagnose explains why something never came up; it never returns nil.
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

// await waits until ctx ends: the runner ends it when nothing that is reported here changes any more.
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

// evidenceTimeout bounds the gathering of evidence, which goes on when the time of the phase is up.
const evidenceTimeout = 15 * time.Second

func explained(ctx context.Context, h *host.Host, d diagnose, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), evidenceTimeout)
	defer cancel()
	return d(ctx, h, cause)
}

func probeKubelet(ctx context.Context, _ *host.Host) string {
	return Probe(ctx, nil, fmt.Sprintf("http://127.0.0.1:%d/healthz", constants.KubeletHealthzPort))
}

// probeAPIServerSpeaks is content with any answer: a kubelet may register its node long before all roles are made.
func probeAPIServerSpeaks(ctx context.Context, h *host.Host) string {
	why := probeAPIServer(ctx, h)
	if strings.Contains(why, answers) {
		return ""
	}
	return why
}

func probeAPIServer(ctx context.Context, h *host.Host) string {
	return probeAt(ctx, h, localEndpoint(h.Config))
}

// probeEndpoint asks where kubeconfigs do: through a load balancer, or at the virtual address.
func probeEndpoint(ctx context.Context, h *host.Host) string {
	return probeAt(ctx, h, controlPlaneEndpoint(h.Config))
}

// AwaitEndpoint waits until the API server answers where kubeconfigs ask.
func AwaitEndpoint(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	return await(ctx, h, r, "endpoint", probeEndpoint, hopelessKubelet, diagnoseEndpoint)
}

// EndpointAnswers reports whether it does.
func EndpointAnswers(ctx context.Context, h *host.Host) bool { return probeEndpoint(ctx, h) == "" }

func diagnoseEndpoint(_ context.Context, h *host.Host, cause error) finding.Finding {
	remedy := "see that the load balancer forwards to " + localEndpoint(h.Config) + ", then run the same command again"
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

// probePod asks a static pod of this machine whether it is well. etcd is not asked: the API server is well only with it.
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
		// The component serves its health on the loopback with a certificate it made up at its start: there is nothing to verify it by.
		return Probe(ctx, &tls.Config{InsecureSkipVerify: true}, fmt.Sprintf("https://127.0.0.1:%d/%s", port, path))
	}
}

const answers = " answers "

// Probe asks a server of this machine for its health, and returns why it is not well, "" if it is. The TLS configuration may be nil.
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

// failedChecks are the names of the health checks that a component reports as failing.
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

// manyRestarts is how often systemd may have restarted the kubelet, or the kubelet a container, before a wait gives up on it.
const manyRestarts = 5

// hopelessKubelet reports whether the kubelet keeps dying, so that nothing that it should start will come.
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

// hopelessAPIServer reports whether the kubelet keeps dying, or since the wait began etcd or the API server.
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
