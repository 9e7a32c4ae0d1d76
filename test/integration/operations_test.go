// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/operation"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

// makeDatabase creates a database of the cloud with two rows in table t.
func (e *cloudTest) makeDatabase(on *mariadb.Server, name string) {
	e.Helper()
	if _, err := e.Admin(on).EnsureDatabase(e.Context(), nil, name); err != nil {
		e.Fatal(err)
	}
	e.SQL(on, "CREATE TABLE "+name+".t (id INT PRIMARY KEY)", "INSERT INTO "+name+".t VALUES (1), (2)")
}

// status writes a status as the program that runs the operation would.
func (e *cloudTest) status(name string, change func(*v1alpha1.OnecloudOperationStatus)) {
	e.Helper()
	o := &v1alpha1.OnecloudOperation{}
	e.Get(o, name)
	before := o.DeepCopy()
	change(&o.Status)
	require.NoError(e, e.Client.Status().Patch(e.Context(), o, client.MergeFrom(before)))
}

// manyOperations creates more operations than are kept, and waits until the first are gone.
func (e *cloudTest) manyOperations() {
	e.Helper()
	const more = 2
	for i := range operation.Keep + more {
		e.Operation(fmt.Sprintf("check-%02d", i), v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionCheck})
	}
	for i := range more {
		e.UntilGone(&v1alpha1.OnecloudOperation{}, fmt.Sprintf("check-%02d", i))
	}
	e.UntilOperation(fmt.Sprintf("check-%02d", operation.Keep+more-1), env.Ended)
}

// TestOperations runs operations of a cloud without a database, on a real API server: the definition rejects invalid ones, the checks report their
// findings, and the history is limited.
func TestOperations(t *testing.T) {
	e := newCloudTest(t, env.Options{})
	require.NoError(t, e.Client.Create(t.Context(), e.CloudAt("127.0.0.1", 1)))
	e.StartOperator()
	e.UntilCloud(func(cr *v1alpha1.OnecloudCluster) bool { return cr != nil && len(cr.Status.Components) > 0 })
	e.Operation("check", v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionCheck, Requester: "the test"})
	o := e.UntilOperation("check", env.Ended)
	if o.Status.Phase != v1alpha1.OperationFailed || len(o.Status.Findings) == 0 || o.Status.Findings[0].Code != "OCA-7051" ||
		!meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionComplete) || !meta.IsStatusConditionFalse(o.Status.Conditions, v1alpha1.ConditionSucceeded) {
		t.Errorf("%+v", o.Status)
	}
	other := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"requester":"another user"}}`))
	if err := e.Client.Patch(t.Context(), o, other); err == nil || !strings.Contains(err.Error(), "the spec of an operation cannot change") {
		t.Errorf("a changed spec: %v", err)
	}
	for want, spec := range map[string]v1alpha1.OnecloudOperationSpec{
		"spec.action":    {Cloud: cloud, Action: "Dance"},
		"spec.cloud":     {Action: v1alpha1.ActionCheck},
		"spec.onFailure": {Cloud: cloud, Action: v1alpha1.ActionCheck, OnFailure: "hope"},
		"spec.timeout":   {Cloud: cloud, Action: v1alpha1.ActionCheck, Timeout: "-1s"},
	} {
		bad := &v1alpha1.OnecloudOperation{Spec: spec}
		bad.Namespace, bad.Name = namespace, "bad"
		if err := e.Client.Create(t.Context(), bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	e.manyOperations()
}
