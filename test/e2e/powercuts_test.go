// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/test/lab/machine"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// recovery is how long a cloud may take to recover from a power cut without help. On two cores, four machines take eight minutes, and over twelve if an
// update was in progress (2026-11-29).
const recovery = 25 * time.Minute

// TestPowerCuts repeatedly kills all machines of a cloud at the same time while clients write, every third time during an update. Each time
// everything must become Available without help, and everything that the API server had confirmed must exist. Unlike on hardware, only the processes
// of a lab machine die: data written to files but not synced survives. OCADM_POWERCUTS_ROUNDS is the number of rounds (10),
// OCADM_POWERCUTS_CONTROL_PLANES that of control-plane nodes (1), in addition to one worker.
func TestPowerCuts(t *testing.T) {
	needRoot(t)
	if os.Getenv("OCADM_TEST_POWERCUTS") == "" {
		t.Skip("make powercuts runs it: it takes half an hour")
	}
	rounds, _ := strconv.Atoi(cmp.Or(os.Getenv("OCADM_POWERCUTS_ROUNDS"), "10"))
	control, _ := strconv.Atoi(cmp.Or(os.Getenv("OCADM_POWERCUTS_CONTROL_PLANES"), "1"))
	s := newCuttable(t, control)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // when to kill, no secret
	at := earlier
	for round := 1; round <= rounds; round++ {
		updating := round%3 == 2
		name := fmt.Sprintf("round %d", round)
		if updating {
			at = map[string]string{earlier: version, version: earlier}[at]
			name += " during an update to " + at
		}
		delay := 2*time.Second + time.Duration(random.Int64N(int64(20*time.Second)))
		if !t.Run(name, func(t *testing.T) { s.powerCut(t, name, delay, updating, at) }) {
			s.explain(t)
			break
		}
	}
	var times strings.Builder
	s.Report(&times)
	t.Logf("times from power to everything Available\n%s", times.String())
}

// newCuttable creates a cloud with its own database.
func newCuttable(t *testing.T, control int) *suite {
	t.Helper()
	ctx := t.Context()
	s := newUpdatable(t, machine.Options{Name: "-cuts", Nodes: control + 1})
	args := []string{"--ingress", "none", "--onecloud-version", earlier, "--ignore-preflight-errors", "Disk"}
	if control > 1 {
		args = append(args, "--high-availability-vip", s.VirtualAddress())
	}
	require.NoError(t, s.Init(ctx, args...))
	for node := 2; node <= control; node++ {
		require.NoError(t, s.JoinControlPlane(ctx, 1, node, "--ignore-preflight-errors", "Disk"))
	}
	require.NoError(t, s.Join(ctx, control+1, "--ignore-preflight-errors", "Disk"))
	s.again(t, time.Now().Add(-24*time.Hour), "")
	return s
}

// powerCut kills every machine some time after clients have started to write, and starts them again.
func (s *suite) powerCut(t *testing.T, name string, delay time.Duration, updating bool, target string) {
	ctx, cancel := context.WithTimeout(t.Context(), recovery+5*time.Minute)
	defer cancel()
	if updating {
		if _, err := s.On(ctx, 1, scenario.Ocadm, "cluster", "update", "--version", target, "--allow-downgrade"); err != nil {
			t.Fatal(err)
		}
	}
	prefix := strings.Fields(name)[0] + strings.Fields(name)[1] + "-"
	written := s.writing(ctx, prefix)
	select {
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	case <-time.After(delay):
	}
	cut := time.Now()
	require.NoError(t, s.everywhere(func(n *machine.Node) error { return n.Kill(ctx) }))
	confirmed := written()
	t.Logf("power was cut after %.1f s, with %d confirmed writes", delay.Seconds(), confirmed)
	if confirmed == 0 {
		t.Error("nothing had been written: there was no load")
	}
	begun := time.Now()
	require.NoError(t, s.everywhere(func(n *machine.Node) error { return n.Start(ctx) }))
	require.NoError(t, s.Timed(name, func() error { s.again(t, cut, target); return nil }))
	t.Logf("everything was Available %.1f s after power was back", time.Since(begun).Seconds())
	out, err := s.Kubectl(ctx, "get", "configmaps", "-o", "jsonpath={.items[*].metadata.name}")
	require.NoError(t, err)
	names := strings.Fields(out)
	for i := 1; i <= confirmed; i++ {
		if !slices.Contains(names, prefix+strconv.Itoa(i)) {
			t.Errorf("%s%d was confirmed and is lost", prefix, i)
		}
	}
	if _, err := s.Kubectl(ctx, "delete", "configmaps", "--all"); err != nil {
		t.Error(err)
	}
}

// writing creates ConfigMaps and logs in to the cloud until the machines are dead. The returned function waits for that and returns the number of confirmed writes.
func (s *suite) writing(ctx context.Context, prefix string) (confirmed func() int) {
	var out strings.Builder
	var clients sync.WaitGroup
	clients.Go(func() {
		script := `i=1; while kubectl --kubeconfig /etc/kubernetes/admin.conf create configmap ` + prefix + `$i >/dev/null 2>&1; do echo $i; i=$((i+1)); done`
		_ = s.Lab.Node(1).Run(ctx, machine.Streams{Out: &out}, "sh", "-c", script) // it ends with its machine
	})
	done := make(chan struct{})
	var logins sync.WaitGroup
	logins.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				_, _ = s.Login(ctx) // load: whether it works does not matter
			}
		}
	})
	return func() int {
		clients.Wait()
		close(done)
		logins.Wait()
		lines := strings.Fields(out.String())
		return len(lines)
	}
}

// everywhere runs do on all machines concurrently.
func (s *suite) everywhere(do func(*machine.Node) error) error {
	var all sync.WaitGroup
	errs := make([]error, len(s.Lab.Nodes()))
	for i, n := range s.Lab.Nodes() {
		all.Go(func() { errs[i] = do(n) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// again waits until every pod has restarted since the cut, every component is Available in the target version, and users can log in.
func (s *suite) again(t *testing.T, cut time.Time, target string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), recovery)
	defer cancel()
	begun := time.Now()
	err := wait.Until(ctx, "the cloud", 2*time.Second, func(ctx context.Context) (bool, string, error) {
		if err := s.podsSince(ctx, cut); err != nil {
			return false, "", err
		}
		status, err := s.Status(ctx)
		if err != nil {
			return false, "", err
		}
		if u := status.Unavailable(); len(u) > 0 || len(status.Components) == 0 || !status.Ready {
			return false, "", fmt.Errorf("not Available: %s", strings.Join(u, "; "))
		}
		if target != "" && status.Version != target {
			return false, "", fmt.Errorf("the cloud has version %s, and not %s", status.Version, target)
		}
		_, err = s.Login(ctx)
		return err == nil, "", err
	}, func(why string) { t.Logf("[%5.1f s] %.200s", time.Since(begun).Seconds(), why) })
	if err != nil {
		s.explain(t)
		t.Fatal(err)
	}
}

// podsSince returns an error while a pod is not ready, or has a container from before the cut.
func (s *suite) podsSince(ctx context.Context, cut time.Time) error {
	out, _, err := s.Lab.Node(1).Exec(ctx, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "get", "pods", "-A", "-o", "json")
	if err != nil {
		return err
	}
	var pods corev1.PodList
	if err := json.Unmarshal([]byte(out), &pods); err != nil {
		return err
	}
	for _, p := range pods.Items {
		// Pods for roles that no node of the lab has stay pending; the cloud's status takes that into account.
		if p.Status.Phase == corev1.PodSucceeded || ownedByJob(p) || p.Spec.NodeName == "" {
			continue
		}
		ready := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
		if !ready {
			return fmt.Errorf("pod %s/%s is %s and not ready: %s %s", p.Namespace, p.Name, p.Status.Phase, p.Status.Reason, p.Status.Message)
		}
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Running == nil || c.State.Running.StartedAt.Time.Before(cut.Truncate(time.Second)) {
				return fmt.Errorf("container %s of pod %s/%s has not started again", c.Name, p.Namespace, p.Name)
			}
		}
	}
	return nil
}

// ownedByJob reports whether the cut may have failed a pod whose Job creates others.
func ownedByJob(p corev1.Pod) bool {
	return slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Job" })
}
