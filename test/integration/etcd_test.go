// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/lab/binaries"
	"yunion.io/x/ocadm/test/require"
)

const etcdMembers = 3

// etcdPods runs the pods of the cloud's etcd as processes, with the command, certificates and environment of the StatefulSet. Each pod has a loopback
// address and a Pod object that reports how its container ended.
type etcdPods struct {
	*cloudTest
	program, dir string
	set          appsv1.StatefulSet
	running      [etcdMembers]*exec.Cmd
	logs         [etcdMembers]*bytes.Buffer
}

func etcdHost(i int) string {
	return fmt.Sprintf("%s-etcd-%d.%s-etcd.%s.svc", cloud, i, cloud, namespace)
}
func etcdAddress(i int) string { return fmt.Sprintf("127.0.1.%d", i+1) }

// TestEtcdMemberWithoutDisk checks that a member of the cloud's etcd that loses its disk becomes a member again without a restart of the others.
func TestEtcdMemberWithoutDisk(t *testing.T) {
	e := etcdPods{cloudTest: newCloudTest(t, env.Options{}), dir: t.TempDir()}
	e.StartOperator(func(l *env.Launch) {
		l.Options.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			for i := range etcdMembers {
				if port, is := strings.CutPrefix(address, etcdHost(i)); is {
					address = etcdAddress(i) + port
				}
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}
	})
	cr := e.Only("etcd")
	cr.Spec.Etcd.Size = etcdMembers
	e.Create(cr)
	var err error
	if e.program, err = binaries.Path(t.Context(), "etcd"); err != nil {
		t.Fatal(err)
	}
	e.prepare()
	for i := range etcdMembers {
		e.start(i)
	}
	for i := range etcdMembers {
		e.serves(i)
	}

	const lost = 2
	_ = e.running[lost].Process.Kill()
	_ = e.running[lost].Wait() // it was killed
	require.NoError(t, os.RemoveAll(e.data(lost)))
	e.start(lost)
	if err := e.running[lost].Wait(); err == nil {
		t.Fatal("a member without its data starts as if nothing were")
	}
	e.loops(lost)
	e.Until(&corev1.ConfigMap{}, cloud+"-etcd-state", func(o client.Object) (bool, string) {
		cm, ok := o.(*corev1.ConfigMap)
		return ok && cm.Data["initial-cluster-state"] == "existing", "its successor may not start"
	})
	e.told("EtcdMemberReplaced")
	e.start(lost)
	e.serves(lost)
	e.UntilGone(&corev1.ConfigMap{}, cloud+"-etcd-state")
	for i := range etcdMembers {
		e.serves(i)
	}
}

// prepare waits for the StatefulSet and writes the files that its pods mount.
func (e *etcdPods) prepare() {
	e.Helper()
	e.UntilThere(&appsv1.StatefulSet{}, cloud+"-etcd")
	e.Get(&e.set, cloud+"-etcd")
	for _, role := range []string{"server", "peer"} {
		s := &corev1.Secret{}
		e.Get(s, cloud+"-etcd-"+role)
		for name, data := range s.Data {
			e.write(name, data)
		}
	}
	var hosts strings.Builder
	for i := range etcdMembers {
		fmt.Fprintf(&hosts, "%s\t%s\n", etcdAddress(i), etcdHost(i))
	}
	e.write("hosts", []byte(hosts.String()))
}

func (e *etcdPods) write(name string, data []byte) {
	e.Helper()
	require.NoError(e, os.WriteFile(filepath.Join(e.dir, name), data, 0o600))
}

func (e *etcdPods) data(i int) string { return filepath.Join(e.dir, fmt.Sprint("data-", i)) }

// start starts a container as a kubelet does, with the current contents of the ConfigMap.
func (e *etcdPods) start(i int) {
	e.Helper()
	c := e.set.Spec.Template.Spec.Containers[0]
	args := []string{"--mount", "sh", "-c", `mount --bind "$0" /etc/hosts && exec "$@"`, filepath.Join(e.dir, "hosts"), e.program}
	replace := strings.NewReplacer("$(POD_NAME)", fmt.Sprintf("%s-etcd-%d", cloud, i), "/var/etcd/data", e.data(i), "//0.0.0.0:", "//"+etcdAddress(i)+":",
		"/etc/etcdtls/member/server-tls/", e.dir+"/", "/etc/etcdtls/member/peer-tls/", e.dir+"/")
	for _, a := range c.Command[1:] {
		args = append(args, replace.Replace(a))
	}
	cmd, log := exec.Command("unshare", args...), &bytes.Buffer{}
	for _, v := range c.Env {
		if v.ValueFrom == nil || v.ValueFrom.ConfigMapKeyRef == nil {
			continue
		}
		cm := &corev1.ConfigMap{}
		err := e.Client.Get(e.Context(), client.ObjectKey{Namespace: namespace, Name: v.ValueFrom.ConfigMapKeyRef.Name}, cm)
		if client.IgnoreNotFound(err) != nil {
			e.Fatal(err)
		}
		if err == nil {
			cmd.Env = append(cmd.Env, v.Name+"="+cm.Data[v.ValueFrom.ConfigMapKeyRef.Key])
		}
	}
	cmd.Env = append(cmd.Env, "PATH="+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(e, cmd.Start())
	e.running[i], e.logs[i] = cmd, log
	e.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
}

// serves waits for the readiness probe.
func (e *etcdPods) serves(i int) {
	e.Helper()
	probe := e.set.Spec.Template.Spec.Containers[0].ReadinessProbe.HTTPGet
	e.Eventually(func() (bool, string) {
		answer, err := http.Get(fmt.Sprintf("http://%s:%d%s", etcdAddress(i), probe.Port.IntValue(), probe.Path))
		if err != nil {
			return false, fmt.Sprintf("member %d: %v", i, err)
		}
		defer answer.Body.Close()
		return answer.StatusCode == http.StatusOK, fmt.Sprintf("member %d: %s", i, answer.Status)
	})
}

// loops reports the container of a member as ended and waits for its next start.
func (e *etcdPods) loops(i int) {
	e.Helper()
	log := e.logs[i].String()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-etcd-%d", cloud, i), Labels: e.set.Spec.Template.Labels}}
	pod.Spec.Containers = []corev1.Container{{Name: "etcd", Image: "etcd"}}
	require.NoError(e, e.Client.Create(e.Context(), pod))
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "etcd", Image: "etcd", RestartCount: 1,
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 1, Message: log[max(0, len(log)-2048):], // a kubelet's limit
		}},
	}}}
	require.NoError(e, e.Client.Status().Update(e.Context(), pod))
}

// told waits for an event.
func (e *etcdPods) told(reason string) {
	e.Helper()
	e.Eventually(func() (bool, string) {
		var list eventsv1.EventList
		require.NoError(e, e.Client.List(e.Context(), &list, client.InNamespace(namespace)))
		for _, ev := range list.Items {
			if ev.Reason == reason {
				return true, ""
			}
		}
		return false, "no event " + reason
	})
}
