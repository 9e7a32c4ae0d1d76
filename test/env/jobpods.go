// SPDX-License-Identifier: Apache-2.0

package env

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cmd"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/operation"
	"yunion.io/x/ocadm/test/integration/harness"
)

// JobPods is a kubelet for the pods of operations' Jobs. Each pod runs ocadm as a process with the arguments, the environment, the Secrets and the
// token of its spec, as process 1 if the test may create a PID namespace. Only the directories of Secrets and backups differ, and the token is in a
// kubeconfig.
type JobPods struct {
	*Env
	// program is ocadm; environ is added to the environment of the pod.
	program string
	environ []string
	// Dir is the directory for the backups.
	Dir string
	wg  sync.WaitGroup

	mu   sync.Mutex
	pods map[types.UID]*JobPod
	// seen holds the arguments and environments of all processes.
	seen []string
	// hold keeps pods from starting.
	hold bool
}

// JobPod is the pod of a Job.
type JobPod struct {
	Process *os.Process
	// Gone means that the pod's node was lost: its status is no longer reported.
	Gone bool
	// OOM makes the kubelet report a killed process as OOM-killed.
	OOM bool

	name string
}

// StartJobPods runs the pods of Jobs until the test ends.
func (e *Env) StartJobPods(program string, environ ...string) *JobPods {
	e.Helper()
	dir, err := os.MkdirTemp("", "ocadm-jobs-")
	e.Must(err)
	j := &JobPods{Env: e, program: program, environ: environ, Dir: dir, pods: map[types.UID]*JobPod{}}
	ctx, stop := context.WithCancel(context.WithoutCancel(e.Context()))
	w, err := e.Client.Watch(ctx, &corev1.PodList{}, client.InNamespace(e.Namespace), client.HasLabels{v1alpha1.LabelOperation})
	if err != nil {
		stop()
		e.Fatal(err)
	}
	j.wg.Go(func() {
		defer w.Stop()
		for e := range w.ResultChan() { // until ctx ends
			if p, is := e.Object.(*corev1.Pod); is && e.Type != watch.Deleted {
				j.see(ctx, p)
			}
		}
	})
	e.Cleanup(func() {
		stop()
		j.mu.Lock()
		for _, p := range j.pods {
			if p.Process != nil {
				_ = p.Process.Kill()
			}
		}
		j.mu.Unlock()
		j.wg.Wait()
		if err := os.RemoveAll(dir); err != nil {
			e.Error(err)
		}
	})
	return j
}

// Hold stops or resumes starting new pods.
func (j *JobPods) Hold(hold bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.hold = hold
}

// Seen returns the arguments and environments of all processes.
func (j *JobPods) Seen() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.seen, "\n")
}

func (j *JobPods) see(ctx context.Context, p *corev1.Pod) {
	j.mu.Lock()
	defer j.mu.Unlock()
	one := j.pods[p.UID]
	switch {
	case one == nil && p.DeletionTimestamp == nil && !j.hold:
		one = &JobPod{name: p.Name}
		j.pods[p.UID] = one
		p := p.DeepCopy()
		j.wg.Go(func() {
			if err := j.run(ctx, p, one); err != nil && ctx.Err() == nil {
				j.Errorf("pod %s: %v", p.Name, err)
			}
		})
	case one == nil && p.DeletionTimestamp != nil:
		_ = j.Client.Delete(ctx, p, client.GracePeriodSeconds(0))
	case one != nil && p.DeletionTimestamp != nil && one.Process != nil && !one.Gone:
		_ = one.Process.Signal(syscall.SIGTERM)
	}
}

func (j *JobPods) run(ctx context.Context, p *corev1.Pod, one *JobPod) error {
	bind := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "node1"}}
	if err := j.Client.SubResource("binding").Create(ctx, p, bind); err != nil {
		return client.IgnoreNotFound(err)
	}
	c, stderr, err := j.command(ctx, p)
	if err != nil {
		return err
	}
	j.mu.Lock()
	err = c.Start()
	one.Process = c.Process
	j.mu.Unlock()
	if err != nil {
		return err
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	if err := j.report(ctx, p, corev1.PodRunning, running); err != nil {
		return err
	}
	_ = c.Wait()
	j.mu.Lock()
	gone, oom := one.Gone, one.OOM
	j.mu.Unlock()
	if gone {
		return nil
	}
	end := &corev1.ContainerStateTerminated{ExitCode: int32(c.ProcessState.ExitCode()), Reason: "Completed", FinishedAt: metav1.Now()}
	phase := corev1.PodSucceeded
	if !c.ProcessState.Success() {
		phase, end.Reason = corev1.PodFailed, "Error"
		if end.ExitCode < 0 {
			end.ExitCode = 137
		}
		text := stderr.String()
		end.Message = text[max(0, len(text)-1000):]
	}
	if oom {
		end.Reason, end.Message = "OOMKilled", ""
	}
	if err := j.report(ctx, p, phase, corev1.ContainerState{Terminated: end}); err != nil {
		return client.IgnoreNotFound(err)
	}
	now := &corev1.Pod{}
	if err := j.Client.Get(ctx, client.ObjectKeyFromObject(p), now); err != nil || now.DeletionTimestamp == nil {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(j.Client.Delete(ctx, now, client.GracePeriodSeconds(0)))
}

// command returns the command that a container runtime would start.
func (j *JobPods) command(ctx context.Context, p *corev1.Pod) (*exec.Cmd, *bytes.Buffer, error) {
	dir := filepath.Join(j.Dir, string(p.UID))
	main := p.Spec.Containers[0]
	for _, m := range main.VolumeMounts {
		i := slices.IndexFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if p.Spec.Volumes[i].Secret == nil { // the volume of the token
			continue
		}
		rest, inside := strings.CutPrefix(m.MountPath, operation.SecretsDir)
		if !inside || len(p.Spec.Volumes[i].Secret.Items) > 0 {
			return nil, nil, fmt.Errorf("there is a mount at %s", m.MountPath)
		}
		if err := j.write(ctx, filepath.Join(dir, "secrets", rest), p.Spec.Volumes[i].Secret); err != nil {
			return nil, nil, err
		}
	}
	kubeconfig, err := j.login(ctx, p, dir)
	if err != nil {
		return nil, nil, err
	}
	args := lists.Map(main.Args, strings.NewReplacer(operation.SecretsDir, filepath.Join(dir, "secrets"), "--dir=/backup", "--dir="+j.Dir).Replace)
	var stderr bytes.Buffer
	c := exec.CommandContext(ctx, j.program, args...)
	c.Dir, c.Stderr = dir, &stderr
	c.Env = append(slices.Clone(j.environ), "KUBECONFIG="+kubeconfig)
	for _, e := range main.Env {
		value := e.Value
		if e.ValueFrom != nil {
			value = map[string]string{"metadata.name": p.Name, "metadata.namespace": p.Namespace}[e.ValueFrom.FieldRef.FieldPath]
		}
		c.Env = append(c.Env, e.Name+"="+value)
	}
	if os.Getuid() == 0 {
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	}
	j.mu.Lock()
	j.seen = append(j.seen, strings.Join(append(main.Args, c.Env...), "\n"))
	j.mu.Unlock()
	return c, &stderr, nil
}

// write writes a Secret to a directory.
func (j *JobPods) write(ctx context.Context, dir string, v *corev1.SecretVolumeSource) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	s := &corev1.Secret{}
	if err := j.Client.Get(ctx, client.ObjectKey{Namespace: j.Namespace, Name: v.SecretName}, s); err != nil {
		if *v.Optional {
			return client.IgnoreNotFound(err)
		}
		return err
	}
	for name, text := range s.Data {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o400); err != nil {
			return err
		}
	}
	return nil
}

// login writes a kubeconfig with the token that the pod gets.
func (j *JobPods) login(ctx context.Context, p *corev1.Pod, dir string) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Spec.ServiceAccountName}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{
		Kind: "Pod", APIVersion: "v1", Name: p.Name, UID: p.UID,
	}}}
	if err := j.Client.SubResource("token").Create(ctx, account, request); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "kubeconfig")
	return path, j.Cluster.WriteLogin(path, clientcmdapi.AuthInfo{Token: request.Status.Token})
}

// As returns the configuration with which a pod that does not run reaches the API server: the token of an account, bound to a pod with that name.
func (j *JobPods) As(account, pod string) *rest.Config {
	j.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: pod},
		Spec: corev1.PodSpec{NodeName: "node1", ServiceAccountName: account, Containers: []corev1.Container{{Name: "a", Image: "a"}}}}
	j.Create(p)
	file, err := j.login(j.Context(), p, j.Dir)
	j.Must(err)
	cfg, err := clientcmd.BuildConfigFromFlags("", file)
	j.Must(err)
	return cfg
}

func (j *JobPods) report(ctx context.Context, p *corev1.Pod, phase corev1.PodPhase, state corev1.ContainerState) error {
	p.Status.Phase = phase
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: p.Spec.Containers[0].Name, Image: p.Spec.Containers[0].Image, State: state}}
	return client.IgnoreNotFound(harness.ReportStatus(ctx, j.Client, p, p.Status))
}

// End calls how with the pod of an operation that is running, and returns the pod's name.
func (j *JobPods) End(op string, how func(*JobPod)) string {
	j.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, p := range j.pods {
		if strings.HasPrefix(p.name, op+"-") && p.Process != nil && !p.Gone && p.Process.Signal(syscall.Signal(0)) == nil {
			how(p)
			return p.name
		}
	}
	j.Fatalf("no pod of %s runs", op)
	return ""
}

// AsProgram is the variable that makes a test program act as ocadm, if its TestMain calls Main.
const AsProgram = "OCADM_TEST_PROGRAM"

// runAsProgram acts as ocadm and exits if AsProgram is set.
func runAsProgram() {
	if os.Getenv(AsProgram) == "" {
		return
	}
	ctx, release := cmd.Signals(context.Background(), os.Exit)
	defer release()
	os.Exit(cmd.Execute(ctx, cmd.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, os.Args[1:]))
}

// StartOwnJobPods runs the pods of Jobs until the test ends, with the test program as ocadm.
func (e *Env) StartOwnJobPods() *JobPods {
	e.Helper()
	self, err := os.Executable()
	e.Must(err)
	return e.StartJobPods(self, AsProgram+"=1")
}
