// SPDX-License-Identifier: Apache-2.0

// Package cloud completes an installation: it gives the node its roles, stores the cloud's settings in the cluster, and creates the cloud. The operations
// themselves are in package cluster.
package cloud

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/addons"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

// readyPatience is how long the wait for a cloud may go on without a change.
const readyPatience = 15 * time.Minute

// Options returns the options of the cloud that a configuration describes. It is pure.
func Options(c *config.Config) cluster.Options {
	o := cluster.Options{
		Name: c.Cloud.Name, Namespace: c.Cloud.Namespace, Version: c.Cloud.Version, ImageRepository: c.Cluster.ImageRepository,
		Edition: c.Cloud.Edition, ProductVersion: c.Cloud.ProductVersion, Profile: c.Cloud.Profile, Region: c.Cloud.Region, Zone: c.Cloud.Zone,
		LoadBalancerEndpoint: LoadBalancer(c), DisableResourceManagement: c.Cloud.DisableResourceManagement,
		UseHyperImage: c.Cloud.UseHyperImage, StorageClass: unless(config.DefaultStorageClass, c.Cloud.StorageClass),
		IngressClass: unless(config.None, c.Cloud.IngressClass), WebHostPorts: cmp.Or(c.Cloud.IngressClass, c.Addons.Ingress) == config.None,
		Database: cluster.Database{
			Host: addons.DatabaseName + "." + c.Cloud.Namespace + ".svc", Port: 3306, Username: "root",
			Secret: addons.DatabaseName, SecretKey: "password",
		},
	}
	if c.Node.RegistryAuth != "" {
		o.PullSecret = cluster.PullSecret
	}
	if c.Database.Host != "" {
		o.Database = cluster.Database{
			Host: c.Database.Host, Port: c.Database.Port, Username: c.Database.User,
			Secret: cluster.DatabaseSecret, SecretKey: cluster.DatabaseSecretKey, TLS: c.Database.TLS, CA: c.Database.CA,
		}
	}
	return o
}

// unless returns "" for a default value, so that a cloud only has the fields that differ.
func unless(byDefault, value string) string {
	if value == byDefault {
		return ""
	}
	return value
}

// LoadBalancer returns the address at which users reach the cloud: the given one, else that of the control plane.
func LoadBalancer(c *config.Config) string {
	return cmp.Or(c.Cloud.LoadBalancerEndpoint, config.HostOf(c.Cluster.ControlPlaneEndpoint), c.Node.AdvertiseAddress, c.Node.IP)
}

// Roles returns the labels for the node's roles in the cloud.
func Roles(c *config.Config) map[string]string {
	roles := map[string]bool{
		cluster.RoleController: c.Node.AsController, cluster.RoleHost: c.Node.EnableHostAgent, cluster.RoleBaremetal: c.Node.Baremetal,
	}
	out := map[string]string{}
	for role, on := range roles {
		if on {
			out[v1alpha1.NodeRolePrefix+role] = v1alpha1.Enable
		}
	}
	return out
}

// Settings labels the node with its roles, and stores the cloud's settings in ConfigMap ocadm-cloud, and the password of an external database server in
// Secret ocadm-database, for "ocadm cluster create".
func Settings() host.Phase {
	m := host.Manifests{
		Objects: func(_ context.Context, h *host.Host, _ client.WithWatch) ([]*unstructured.Unstructured, error) {
			return settings(h.Config)
		},
		After: labelNode,
	}
	return m.Phase(host.Phase{
		Name: "cloud-settings", Short: "Label the node with its roles and save the settings of the cloud",
		Long: "Labels the node onecloud.yunion.io/controller=enable and so on, and stores the settings of the cloud in ConfigMap ocadm-cloud and the\n" +
			"password of an external database in Secret ocadm-database, both in namespace onecloud, where ocadm cluster create finds them.",
	})
}

// nodes returns the nodes that get roles: the named ones, or else this machine.
func nodes(c *config.Config) []string {
	if len(c.Cloud.ControllerNodes) > 0 || c.Node.Name == "" {
		return c.Cloud.ControllerNodes
	}
	return []string{c.Node.Name}
}

// marks returns the annotations of nodes in a cluster that others built: they mean that the role must be removed again.
func marks(c *config.Config) map[string]string {
	if len(c.Cloud.ControllerNodes) == 0 {
		return nil
	}
	return map[string]string{cluster.AnnotationInstalled: "true"}
}

// labelNode gives the nodes their roles.
func labelNode(ctx context.Context, h *host.Host, c client.WithWatch, look bool) (kube.ChangeSet, error) {
	roles := Roles(h.Config)
	names := nodes(h.Config)
	if !look {
		if len(roles) == 0 || len(names) == 0 {
			return nil, nil
		}
		return cluster.Label(ctx, c, names, roles, marks(h.Config))
	}
	var set kube.ChangeSet
	for _, name := range names {
		var n corev1.Node
		if err := c.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil {
			return nil, err
		}
		for label := range roles {
			if n.Labels[label] != v1alpha1.Enable {
				set = append(set, kube.Change{Action: kube.Configured, Kind: "Node", Name: n.Name})
				break
			}
		}
	}
	return set, nil
}

func settings(c *config.Config) ([]*unstructured.Unstructured, error) {
	password := ""
	if c.Database.Host != "" {
		password = c.Database.Password
	}
	o := Options(c)
	// The version is chosen for each creation, so it is not stored.
	o.Version = ""
	objs, err := cluster.Settings(o, password)
	if err == nil && o.PullSecret != "" {
		objs = append(objs, host.PullSecret(c.Node.RegistryAuth, o.Namespace))
	}
	return objs, err
}

// Create creates the cloud when --onecloud-version was given, and waits for it unless --wait=false.
func Create() host.Phase {
	return host.Phase{
		Name: "cloud", Short: "Create the cloud", Patience: readyPatience,
		Long: "Creates OnecloudCluster onecloud/default and waits until every component is Available (--wait=false does not wait). Without\n" +
			"--onecloud-version, no cloud is created; ocadm cluster create creates it later. With --restore-from, phase restore creates it.",
		Skip: workflow.SkipIf("--onecloud-version was not given", func(h *host.Host) bool { return h.Config.Cloud.Version == "" }),
		Check: func(ctx context.Context, h *host.Host) (bool, error) {
			done, _, err := look(ctx, h)
			return err == nil && done, nil // Run reports what is wrong
		},
		Plan: func(ctx context.Context, h *host.Host) ([]string, error) {
			o := Options(h.Config)
			switch _, there, err := look(ctx, h); {
			case there && err != nil: // it differs
				return nil, err
			case there:
				return []string{"wait for OnecloudCluster " + o.Key().String()}, nil
			}
			return []string{fmt.Sprintf("create OnecloudCluster %s version %s", o.Key(), o.Version)}, nil
		},
		Run: run,
	}
}

// look reports whether the cloud exists as wanted and, if requested, is ready.
func look(ctx context.Context, h *host.Host) (done, there bool, err error) {
	o := Options(h.Config)
	err = h.Look(ctx, func(ctx context.Context, c client.WithWatch) error {
		if h.Restore != nil {
			there, err = h.Restore.Exists(ctx, c)
		} else {
			there, err = cluster.Agrees(ctx, c, o)
		}
		if err != nil || !there {
			return err
		}
		if done = !h.Config.Cloud.Wait; done {
			return nil
		}
		s, err := cluster.Get(ctx, c, o.Key())
		done = s.Ready
		return err
	})
	return done, there, err
}

func run(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	c, err := h.Kube(ctx)
	if err != nil {
		return err
	}
	o := Options(h.Config)
	if h.Restore == nil {
		action, err := cluster.Create(ctx, c, o)
		if err != nil {
			return err
		}
		if action == kube.Created {
			r.Changed("created OnecloudCluster %s version %s", o.Key(), o.Version)
		}
	}
	if !h.Config.Cloud.Wait {
		return nil
	}
	return host.WhilePodsMove(ctx, c, r, func() error { return cluster.Wait(ctx, c, o.Key(), Report(r)) })
}

// Report returns a function that turns a cloud's status into reports: each component once when it becomes Available, each new reason for waiting. What
// was Available or Idle at first is only counted: of a change to one component, a user wants to see that one.
func Report(r workflow.Reporter) func(cluster.Status) {
	var reported map[string]string
	return func(s cluster.Status) {
		if s.Unreachable != "" { // the rest is the last known state
			r.Waiting("cloud", s.Unreachable)
			return
		}
		available, all := s.Counts()
		if all == 0 || available == all && !s.Ready { // no component shows the change yet
			r.Waiting("cloud", s.Message)
			return
		}
		r.Waiting("cloud", "")
		first := reported == nil
		if first {
			reported = map[string]string{}
		}
		for _, c := range s.Components {
			text := string(c.State)
			if !c.Settled() {
				if why := cluster.Why(c); why != "" {
					text += ": " + why
				}
			}
			if reported[c.Name] == text {
				continue
			}
			reported[c.Name] = text
			if c.Settled() {
				if first {
					continue
				}
				r.Waiting(c.Name, "")
			}
			switch c.State {
			case v1alpha1.Disabled:
			case v1alpha1.Available:
				r.Info("%s is available", c.Name)
			case v1alpha1.Idle:
				r.Info("%s is idle: %s", c.Name, cluster.Why(c))
			default:
				r.Waiting(c.Name, text)
			}
		}
		r.Progress(int64(available), int64(all), "components")
	}
}
