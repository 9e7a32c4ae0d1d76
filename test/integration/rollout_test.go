// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/test/env"
)

// TestPausedComponentIsNotChanged checks that a user's change in a paused component stays until it is no longer paused, and that the others continue.
func TestPausedComponentIsNotChanged(t *testing.T) {
	e := installed(t, env.Options{}, env.Small...)
	const mine = "example.com/mine:v1"
	usual := e.Deployments()["glance"].Spec.Template.Spec.Containers[0].Image
	e.Edit(`{"metadata":{"annotations":{"onecloud.yunion.io/paused":"glance"}}}`)
	e.UntilComponent("glance", func(c v1alpha1.ComponentStatus) bool {
		return c.State == v1alpha1.Available && c.Reason == "Paused"
	})
	for _, name := range []string{"glance", "yunionconf"} {
		e.SetImage(cloud+"-"+name, mine)
	}
	e.UntilImage("yunionconf", strings.Replace(usual, "glance", "yunionconf", 1))
	e.UntilReady()
	if got := e.Deployments()["glance"].Spec.Template.Spec.Containers[0].Image; got != mine {
		e.Errorf("the paused glance runs %s", got)
	}
	e.Edit(`{"metadata":{"annotations":{"onecloud.yunion.io/paused":null}}}`)
	e.UntilImage("glance", usual)
	e.UntilReady()
}

// TestFixAfterFailedRollout sets an option with which keystone, on which everything depends, does not start. A revert and a new release are
// applied, although that rollout has failed and keystone does not answer.
func TestFixAfterFailedRollout(t *testing.T) {
	e := installed(t, env.Options{Workloads: env.Programs}, "keystone", "logger")
	cm := &corev1.ConfigMap{}
	e.Get(cm, "default-keystone")
	e.EditObject(cm, cm.GetName(), `{"metadata":{"annotations":{"onecloud.yunion.io/accept-options":"no_such_option"}},"data":{"no_such_option":"1"}}`)
	e.UntilComponent("keystone", func(c v1alpha1.ComponentStatus) bool {
		return c.State == v1alpha1.Degraded && strings.Contains(c.Message, "CrashLoopBackOff")
	})
	// This is still wrong, but another rollout, which the previous one does not block.
	e.Edit(`{"spec":{"keystone":{"tag":"v4.0.4-fix"},"logger":{"tag":"v4.0.4-fix"}}}`)
	e.UntilImage("keystone", "registry.cn-beijing.aliyuncs.com/yunionio/keystone:v4.0.4-fix")
	e.UntilComponent("logger", func(c v1alpha1.ComponentStatus) bool { return slices.Contains(c.BlockedBy, "keystone") })
	e.EditObject(cm, cm.GetName(), `{"data":{"no_such_option":null}}`)
	e.UntilReady()
	e.UntilImage("logger", "registry.cn-beijing.aliyuncs.com/yunionio/logger:v4.0.4-fix")
	e.Edit(`{"spec":{"keystone":{"tag":null},"logger":{"tag":null}}}`)
	e.UntilReady()
}

// TestSwitchRunsUntilItsNextImageIsPulled checks that a node's virtual switch keeps running until its new image has been pulled there.
func TestSwitchRunsUntilItsNextImageIsPulled(t *testing.T) {
	const puller = cloud + "-host-ovs-image"
	e := installed(t, env.Options{}, "keystone", "region", "ovn-north", "host", "host-ovs-image", "host-ovsdb-server", "host-ovs-vswitchd")
	image := func(component string) string {
		ds := &appsv1.DaemonSet{}
		e.Get(ds, cloud+"-"+component)
		return ds.Spec.Template.Spec.Containers[0].Image
	}
	was := image("host-ovsdb-server")
	e.Kubelet.Hold("DaemonSet", namespace, puller)
	e.Edit(`{"spec":{"hostagent":{"OvnController":{"tag":"next"}}}}`)
	e.UntilComponent("host-ovsdb-server", func(c v1alpha1.ComponentStatus) bool {
		return c.State == v1alpha1.Available && c.Outdated && slices.Equal(c.BlockedBy, []string{"host-ovs-image"})
	})
	if pulled := image("host-ovs-image"); !strings.HasSuffix(pulled, ":next") || image("host-ovsdb-server") != was || image("host-ovs-vswitchd") != was {
		e.Errorf("while %s is pulled, the switch runs %s and %s", pulled, image("host-ovsdb-server"), image("host-ovs-vswitchd"))
	}
	e.Kubelet.Release(e.Context(), "DaemonSet", namespace, puller)
	e.UntilReady()
	if image("host-ovsdb-server") == was || image("host-ovs-vswitchd") == was {
		e.Errorf("the switch still runs %s", was)
	}
}
