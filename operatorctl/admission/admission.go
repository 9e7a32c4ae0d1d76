// SPDX-License-Identifier: Apache-2.0

// Package admission validates specs. The API server validates them with the schema and the CEL rules of the CRD; the operator repeats that with the
// built-in CRD, because the one in the cluster may be older, or that of another program. The rules are markers of the types in api/v1alpha1;
// scripts/crdpack adds those that follow from the table of components.
package admission

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/templates"
)

// Definition is the file with the CRD of OnecloudCluster.
const Definition = "operator/crds/onecloud.yunion.io_onecloudclusters.yaml"

// Spec is the type that this package validates.
type Spec = v1alpha1.OnecloudClusterSpec

// Violation is an error in a spec. Block is the key below spec, or below spec.components, that contains it.
type Violation struct{ Block, Field, Message string }

func (v Violation) Error() string { return "spec." + v.Field + ": " + v.Message }

// checker validates as an API server does.
type checker struct {
	structural *schema.Structural
	schema     validation.SchemaValidator
	cel        *cel.Validator
}

// compiled caches the checker of the built-in CRD, nil until it is needed: it takes megabytes, and specs seldom change.
var compiled struct {
	sync.Mutex
	*checker
}

// Release frees the memory of the compiled rules. They are compiled again when the next spec changes.
func Release() {
	compiled.Lock()
	defer compiled.Unlock()
	compiled.checker = nil
}

func compile() (*checker, error) {
	data, err := fs.ReadFile(templates.Files(), Definition)
	if err != nil {
		return nil, err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(data, &crd); err != nil {
		return nil, err
	}
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	props := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&spec, props, nil); err != nil {
		return nil, err
	}
	c := &checker{}
	if c.structural, err = schema.NewStructural(props); err != nil {
		return nil, err
	}
	if c.schema, _, err = validation.NewSchemaValidator(props); err != nil {
		return nil, err
	}
	c.cel = cel.NewValidator(c.structural, false, celconfig.PerCallLimit)
	return c, nil
}

// Check validates a spec. old is the previous one, nil if unknown. Messages quote no values, which may be passwords.
func Check(ctx context.Context, s, old *Spec) ([]Violation, error) {
	compiled.Lock()
	defer compiled.Unlock()
	if compiled.checker == nil {
		c, err := compile()
		if err != nil {
			return nil, fmt.Errorf("reading the built-in CRD: %w", err)
		}
		compiled.checker = c
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s)
	if err != nil {
		return nil, fmt.Errorf("reading spec: %w", err)
	}
	var before any
	if old != nil {
		if before, err = runtime.DefaultUnstructuredConverter.ToUnstructured(old); err != nil {
			return nil, fmt.Errorf("reading spec: %w", err)
		}
	}
	errs := validation.ValidateCustomResource(nil, tree, compiled.schema)
	broken, _ := compiled.cel.Validate(ctx, nil, compiled.structural, tree, before, celconfig.RuntimeCELCostBudget)
	var out []Violation
	for i, e := range slices.Concat(errs, broken) {
		v := Violation{Field: strings.TrimPrefix(e.Field, "."), Message: e.Detail}
		if i < len(errs) {
			v.Message = strings.TrimSuffix(strings.ToLower(e.Type.String())+": "+e.Detail, ": ")
		}
		parts := strings.SplitN(v.Field, ".", 3)
		if v.Block, _, _ = strings.Cut(parts[0], "["); parts[0] == "components" && len(parts) > 1 {
			v.Block = parts[1]
		}
		out = append(out, v)
	}
	slices.SortStableFunc(out, func(a, b Violation) int { return strings.Compare(a.Field, b.Field) })
	return out, nil
}

// Fixed returns the immutable values of a spec, by field, for the status of the cloud: the operator has no other way to know the previous spec.
func Fixed(s *Spec) map[string]string {
	out := map[string]string{"region": s.Region, "zone": s.Zone, "mysql.host": s.MySQL.Host, "storageClassName": s.StorageClassName}
	if s.MySQL.Port != 0 {
		out["mysql.port"] = strconv.Itoa(int(s.MySQL.Port))
	}
	if s.Clickhouse.Host != "" {
		out["clickhouse.host"], out["clickhouse.port"] = s.Clickhouse.Host, strconv.Itoa(int(cmp.Or(s.Clickhouse.Port, component.DefaultClickHousePort)))
	}
	if s.Etcd.Size != 0 && (s.Etcd.Disable == nil || !*s.Etcd.Disable) {
		out["etcd.size"] = strconv.Itoa(int(s.Etcd.Size))
	}
	maps.DeleteFunc(out, func(_, v string) bool { return v == "" })
	return out
}

// Before rebuilds a spec from the result of Fixed, as far as Check needs it; nil if that is empty.
func Before(fixed map[string]string) *Spec {
	if len(fixed) == 0 {
		return nil
	}
	number := func(field string) int32 {
		n, err := strconv.ParseInt(fixed[field], 10, 32)
		if err != nil {
			return 0
		}
		return int32(n)
	}
	s := &Spec{Region: fixed["region"], Zone: fixed["zone"], StorageClassName: fixed["storageClassName"]}
	s.MySQL.Host, s.MySQL.Port, s.Etcd.Size = fixed["mysql.host"], number("mysql.port"), number("etcd.size")
	s.Clickhouse.Host, s.Clickhouse.Port = fixed["clickhouse.host"], number("clickhouse.port")
	return s
}
