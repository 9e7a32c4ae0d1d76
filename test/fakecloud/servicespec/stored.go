// SPDX-License-Identifier: Apache-2.0

package servicespec

import (
	"encoding/json"
	"log"
	"maps"
	"reflect"

	"yunion.io/x/ocadm/internal/options"
)

// StoredOptions is the configuration that keystone stores for a service.
type StoredOptions map[string]any

// Merge merges stored options over those of the file, except options that only the file may set. It also returns the changes: option -> [file, stored].
func Merge(file Values, schema Schema, stored ...StoredOptions) (Values, map[string][2]any) {
	merged := maps.Clone(file)
	changed := map[string][2]any{}
	for _, kept := range stored {
		for key, raw := range kept {
			kind, known := schema[key]
			if !known || !options.Stored(key) {
				continue
			}
			value, err := Convert(kind, raw)
			if err != nil {
				continue
			}
			if old, given := file[key]; given && !reflect.DeepEqual(old, value) {
				changed[key] = [2]any{old, value}
			}
			merged[key] = value
		}
	}
	return merged, changed
}

// Upload splits options into those that a service stores for itself and those of the service "common".
func Upload(values Values) (own, common StoredOptions) {
	own, common = StoredOptions{}, StoredOptions{}
	for key, value := range values {
		switch {
		case !options.Stored(key):
		case options.Shared(key):
			common[key] = value
		default:
			own[key] = value
		}
	}
	return own, common
}

// LogChanges logs the changes by the stored configuration, as the services do.
func LogChanges(changed map[string][2]any) {
	if len(changed) == 0 {
		return
	}
	text, err := json.Marshal(changed)
	if err == nil {
		log.Printf("Options changed: %s", text)
	}
}
