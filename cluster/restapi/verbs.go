// SPDX-License-Identifier: Apache-2.0

package restapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/operation"
	"yunion.io/x/ocadm/operatorctl/resolve"
)

type list[T any] struct {
	Body struct {
		Items []T `json:"items"`
	}
}

func listOf[T any](items []T) *list[T] {
	out := &list[T]{}
	out.Body.Items = append([]T{}, items...)
	return out
}

func (s *server) clouds(api huma.API) {
	const item = "/namespaces/{namespace}/clouds/{name}"
	huma.Register(api, describe("list-releases", http.MethodGet, item+"/releases", "releases", "List the releases of a cloud, the latest first"), s.releases)
	scale := describe("scale-component", http.MethodPost, item+"/components/{component}/scale", "components", "Set how many pods a component has")
	scale.Description = "The number goes into the spec of the cloud."
	huma.Register(api, scale, scaled)
	for _, v := range []struct{ path, action, summary string }{
		{"update", v1alpha1.ActionUpdate, "Move a cloud to another release or registry, by an operation"},
		{"rollback", v1alpha1.ActionRollback, "Move a cloud back to an earlier release, by an operation"},
	} {
		d := describe(v.path+"-cloud", http.MethodPost, item+"/"+v.path, "clouds", v.summary)
		d.DefaultStatus = http.StatusCreated
		huma.Register(api, d, func(ctx context.Context, in *moveInput) (*object, error) {
			return operate(ctx, in.Named, in.Once, v1alpha1.OnecloudOperationSpec{
				Cloud: in.Name, Action: v.action, OnFailure: in.Body.OnFailure, Update: in.Body.Update, Rollback: in.Body.Rollback,
			})
		})
	}
	d := describe("create-backup", http.MethodPost, item+"/backups", "backups", "Back up a cloud now, as its schedule does, by an operation")
	d.Description = "A Job writes the file where the schedule puts it, with its recipients, and proves it. A cloud without a schedule has no such place: OCA-7423."
	d.DefaultStatus = http.StatusCreated
	huma.Register(api, d, backedUp)
}

// backedUp requests a backup, and refuses what the operator would.
func backedUp(ctx context.Context, in *struct {
	Named
	Once
}) (*object, error) {
	cloud := &v1alpha1.OnecloudCluster{}
	if err := of(ctx).Get(ctx, in.key(), cloud); err != nil {
		return nil, failed(err)
	}
	if err := operation.Unscheduled(cloud); err != nil {
		return nil, failed(err)
	}
	return operate(ctx, in.Named, in.Once, v1alpha1.OnecloudOperationSpec{Cloud: in.Name, Action: v1alpha1.ActionBackup})
}

type moveInput struct {
	Named
	Once
	Body struct {
		OnFailure v1alpha1.OnFailure           `json:"onFailure,omitempty" enum:"rollback,pause"`
		Update    *v1alpha1.UpdateParameters   `json:"update,omitempty"`
		Rollback  *v1alpha1.RollbackParameters `json:"rollback,omitempty"`
	}
}

// releases are read with the operator's permissions, because they are Secrets: users who may read the cloud may see its releases.
func (s *server) releases(ctx context.Context, in *Named) (*list[cluster.Release], error) {
	status, err := cluster.Get(ctx, of(ctx), in.key())
	if err != nil {
		return nil, failed(err)
	}
	all, err := cluster.Releases(ctx, s.own, in.key(), status) // the operator may list clouds, but not get one
	if err != nil {
		return nil, failed(err)
	}
	return listOf(all), nil
}

// scaleInput is the wanted number of pods of a component.
type scaleInput struct {
	Named
	Component string `path:"component" maxLength:"63"`
	Body      struct {
		Replicas int32 `json:"replicas" minimum:"1" maximum:"100" doc:"To stop a component, set disable in its block of the spec."`
	}
}

func scaled(ctx context.Context, in *scaleInput) (*struct {
	Body struct {
		Changes []string `json:"changes"`
	}
}, error) {
	one, ok := catalog.Get(in.Component)
	if !ok {
		return nil, problem(http.StatusNotFound, fmt.Sprintf("%q is not a component", in.Component))
	}
	ref := cluster.ComponentRef{Cloud: in.key(), Name: in.Component, Block: one.SpecPath()}
	if why := resolve.Unscalable(catalog.All(), one, in.Body.Replicas); why != "" {
		return nil, problem(http.StatusUnprocessableEntity, fmt.Sprintf("component %s cannot be scaled: %s", in.Component, why))
	}
	out := &struct {
		Body struct {
			Changes []string `json:"changes"`
		}
	}{}
	lines, err := ref.Apply(ctx, of(ctx), cluster.ComponentChange{"replicas": int64(in.Body.Replicas)})
	out.Body.Changes = append([]string{}, lines...)
	return out, failed(err)
}

// operate creates an operation on behalf of the sender, once for each key.
func operate(ctx context.Context, cloud Named, once Once, spec v1alpha1.OnecloudOperationSpec) (*object, error) {
	requester, err := sender(ctx)
	if err != nil {
		return nil, failed(err)
	}
	spec.Requester = requester
	digest, err := once.digest(requester, spec.Action, spec)
	if err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&spec)
	if err != nil {
		return nil, fmt.Errorf("writing an operation: %w", err)
	}
	k := kindAt("operations")
	u := k.empty(client.ObjectKey{Namespace: cloud.Namespace})
	u.SetGenerateName(operation.Prefix(spec.Action))
	u.SetLabels(map[string]string{v1alpha1.LabelOperationCloud: spec.Cloud})
	u.Object["spec"] = content
	return k.createOnce(ctx, u, digest)
}

// done is the answer to a verb that can be repeated.
type done struct {
	Body struct {
		Changed bool `json:"changed" doc:"false if nothing had to change"`
	}
}

func doneWith(changed bool, err error) (*done, error) {
	out := &done{}
	out.Body.Changed = changed
	return out, failed(err)
}

func (s *server) operations(api huma.API) {
	for verb, to := range map[string]string{"pause": v1alpha1.OperationPause, "resume": "", "cancel": v1alpha1.OperationCancel} {
		d := describe(verb+"-operation", http.MethodPost, "/namespaces/{namespace}/operations/{name}/"+verb, "operations", map[string]string{
			"pause": "Pause an operation after its current step", "resume": "Resume a paused operation", "cancel": "Cancel an operation"}[verb])
		huma.Register(api, d, func(ctx context.Context, in *Named) (*done, error) {
			return doneWith(cluster.Control(ctx, of(ctx), in.key(), to))
		})
	}
}

func (s *server) machines(api huma.API) {
	const item = "/namespaces/{namespace}/machines/{name}/"
	for verb, v := range map[string]struct {
		summary string
		marks   func(time.Time) map[string]string
	}{
		"pause":   {"Keep a machine from joining until it is resumed", cluster.PauseMachine},
		"resume":  {"Let a paused machine join", cluster.ResumeMachine},
		"retry":   {"Retry what failed on a machine", cluster.RetryMachine},
		"abandon": {"Do nothing more on the machine itself when it is deleted", cluster.AbandonMachine},
	} {
		huma.Register(api, describe(verb+"-machine", http.MethodPost, item+verb, "machines", v.summary), func(ctx context.Context, in *Named) (*done, error) {
			return doneWith(cluster.MarkMachine(ctx, of(ctx), in.key(), v.marks(time.Now())))
		})
	}
	several := describe("create-machines", http.MethodPost, "/namespaces/{namespace}/machines/batch", "machines", "Create several machines, or none")
	several.Description = "Each is checked before the first is created. An existing one with the same spec does not change, so the request can be repeated."
	huma.Register(api, several, addAll)
	d := describe("precheck-machine", http.MethodPost, item+"precheck", "machines", "Run the checks of join on a machine, by an operation")
	d.DefaultStatus = http.StatusCreated
	huma.Register(api, d, func(ctx context.Context, in *struct {
		Named
		Once
	}) (*object, error) {
		m, err := cluster.MachineOf(ctx, of(ctx), in.key())
		if err != nil {
			return nil, failed(err)
		}
		return operate(ctx, in.Named, in.Once, v1alpha1.OnecloudOperationSpec{Cloud: m.Spec.Cloud, Action: v1alpha1.ActionPrecheckMachine,
			Machine: &v1alpha1.MachineParameters{Name: in.Name}})
	})
}

// Added is the result for one machine of a batch.
type Added struct {
	Name   string `json:"name"`
	Action string `json:"action" enum:"created,unchanged"`
}

type batch struct {
	Place
	Body struct {
		Items []Resource `json:"items" minItems:"1" maxItems:"2000"`
	}
}

// addAll creates machines, all or none.
func addAll(ctx context.Context, in *batch) (*list[Added], error) {
	machines := kindAt("machines")
	var text []byte
	for _, item := range in.Body.Items {
		u, err := machines.wanted(item, in.Namespace)
		if err != nil {
			return nil, err
		}
		one, err := json.Marshal(u.Object)
		if err != nil {
			return nil, err
		}
		text = append(append(text, "---\n"...), append(one, '\n')...)
	}
	all, err := cluster.ReadMachines("the request", text, in.Namespace, "")
	if err != nil {
		return nil, failed(err)
	}
	var items []Added
	err = cluster.AddMachines(ctx, of(ctx), all, nil, func(name, action string) { items = append(items, Added{name, action}) })
	return listOf(items), failed(err)
}
