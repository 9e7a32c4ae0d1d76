// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/test/require"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &o.Object))
	return o
}

func TestSame(t *testing.T) {
	const (
		managed = `
metadata:
  managedFields:
  - {manager: ocadm, operation: Apply, apiVersion: apps/v1, fieldsV1: {"f:spec": {"f:replicas": {}}}}`
		more = `
metadata:
  managedFields:
  - {manager: ocadm, operation: Apply, apiVersion: apps/v1, fieldsV1: {"f:spec": {"f:replicas": {}, "f:paused": {}}}}`
		sent = "\nspec: {replicas: 1, containers: [{name: a}]}"
		live = "\nspec: {replicas: 1, containers: [{name: a, tty: false}]}"
	)
	for name, test := range map[string]struct {
		before, after string
		want          bool
	}{
		"nothing":                   {managed + live, managed + live, true},
		"revision of a controller":  {managed + live, managed + "\n  annotations: {deployment.kubernetes.io/revision: '1'}" + live, true},
		"status":                    {managed + live, managed + live + "\nstatus: {replicas: 1}", true},
		"a field of another client": {managed + live, managed + "\nspec: {replicas: 1, paused: true, containers: [{name: a, tty: false}]}", true},
		"a value of ours":           {managed + "\nspec: {replicas: 3, containers: [{name: a, tty: false}]}", managed + live, false},
		"an item of a list":         {managed + "\nspec: {replicas: 1, containers: [{name: a, tty: true}]}", managed + live, false},
		"a field no longer sent":    {more + live, managed + live, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := same("ocadm", object(t, sent), object(t, test.before), object(t, test.after)); got != test.want {
				t.Errorf("same is %t", got)
			}
		})
	}
}
