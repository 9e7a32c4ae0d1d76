// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/operatorctl/operation"
)

// Create creates a cloud. It changes nothing if the cloud exists and matches the options. If the cloud differs, the error lists the differences. It
// also fails if the cloud is being deleted.
func Create(ctx context.Context, c client.Client, o Options) (kube.Action, error) {
	want := Manifest(o)
	live, err := get(ctx, c, o.Key())
	if err == nil {
		return kube.Unchanged, agrees(o, want, live)
	}
	if !apierrors.IsNotFound(err) {
		return "", err
	}
	if err := complete(o); err != nil {
		return "", err
	}
	if err := alone(ctx, c, o); err != nil {
		return "", err
	}
	err = c.Create(ctx, want, client.FieldOwner(kube.FieldManager))
	switch {
	case err == nil:
		return kube.Created, nil
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return "", finding.Errorf("OCA-7006", fmt.Sprintf("The API server rejects cloud %s", o.Key()),
			"correct the setting in the message, then run the command again", "%w", err)
	}
	return "", fmt.Errorf("creating cloud %s: %w", o.Key(), err)
}

// Agrees reports whether the cloud exists. The error lists what differs from the options.
func Agrees(ctx context.Context, c client.Client, o Options) (exists bool, err error) {
	live, err := get(ctx, c, o.Key())
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, agrees(o, Manifest(o), live)
}

func complete(o Options) error {
	const what = "Required settings are missing"
	switch {
	case o.Version == "":
		return finding.New("OCA-7007", what, "no version was given", "give --version, for example --version v4.0.4")
	case version.UnknownRelease(o.Version):
		return operation.UnknownRelease("ocadm", "ocadm", o.Version)
	case o.Database.Host == "":
		return finding.New("OCA-7007", what, "no database server is known: there are no settings in ConfigMap "+o.Namespace+"/"+SettingsName, "on a cluster of ocadm init: "+
			"ocadm init phase cloud-settings, on the first control-plane node; on another one: ocadm operator install --onecloud-version "+o.Version)
	}
	return nil
}

// alone refuses a second cloud in the namespace: both would use the same node ports and databases.
func alone(ctx context.Context, c client.Client, o Options) error {
	var list v1alpha1.OnecloudClusterList
	if err := c.List(ctx, &list, client.InNamespace(o.Namespace)); err != nil {
		return fmt.Errorf("listing clouds: %w", err)
	}
	if len(list.Items) == 0 {
		return nil
	}
	other := list.Items[0].Name
	return finding.New("OCA-7003", fmt.Sprintf("Cannot create cloud %s next to cloud %s", o.Name, other), "both would use the same node ports and databases",
		"ocadm cluster status --name "+other)
}

// leaving refuses a cloud that is being deleted: it is neither the wanted one nor a target for a restore.
func leaving(live *unstructured.Unstructured) error {
	if live.GetDeletionTimestamp() == nil {
		return nil
	}
	return finding.New("OCA-7003", fmt.Sprintf("Cloud %s is still being deleted", client.ObjectKeyFromObject(live)),
		"a new cloud of this name can be created when the old one is gone",
		fmt.Sprintf("kubectl -n %s wait --for=delete oc/%s --timeout=10m; then run the command again", live.GetNamespace(), live.GetName()))
}

func agrees(o Options, want, live *unstructured.Unstructured) error {
	if err := leaving(live); err != nil {
		return err
	}
	var diffs []string
	spec, _ := live.Object["spec"].(map[string]any)
	if _, chosen, _ := unstructured.NestedMap(spec, "mysql", "tls"); !chosen && o.Database.TLS == defaultTLS {
		// The cloud predates this setting.
		want = want.DeepCopy()
		unstructured.RemoveNestedField(want.Object, "spec", "mysql", "tls")
	}
	diffs = differences("spec", want.Object["spec"], spec, diffs)
	for k, v := range want.GetAnnotations() {
		if got := live.GetAnnotations()[k]; got != v && !(got == "" && v == defaultEdition) {
			diffs = append(diffs, fmt.Sprintf("annotation %s is %q, requested %q", k, got, v))
		}
	}
	if len(diffs) == 0 {
		return nil
	}
	return finding.New("OCA-7003", fmt.Sprintf("Cloud %s exists and differs from the given settings", o.Key()), strings.Join(diffs, "\n"),
		"give the cloud's own settings, or none; to change them: ocadm cluster update --help, or kubectl -n "+o.Namespace+" edit oc "+o.Name)
}

const (
	defaultEdition = "ce"
	defaultTLS     = "preferred"
)

// differences lists the values of want that live lacks. It ignores other values of live.
func differences(path string, want, live any, out []string) []string {
	w, isMap := want.(map[string]any)
	if !isMap {
		if !reflect.DeepEqual(want, live) && fmt.Sprint(want) != fmt.Sprint(live) {
			out = append(out, fmt.Sprintf("%s is %s, requested %s", path, shown(live), shown(want)))
		}
		return out
	}
	l, _ := live.(map[string]any)
	for _, k := range slices.Sorted(maps.Keys(w)) {
		out = differences(path+"."+k, w[k], l[k], out)
	}
	return out
}

func shown(v any) string {
	if v == nil {
		return "not set"
	}
	return fmt.Sprintf("%v", v)
}
