// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"maps"
	"net/http"
	"reflect"

	"yunion.io/x/ocadm/test/standin/config"
	"yunion.io/x/ocadm/test/standin/profile"
)

// Stored is the configuration that keystone keeps for a service.
type Stored map[string]any

// Merge puts stored options over those of the file, except the ones that only the file decides, and tells what changed:
// option -> [file, stored].
func Merge(file config.Values, schema config.Schema, stored ...Stored) (config.Values, map[string][2]any) {
	merged := maps.Clone(file)
	changed := map[string][2]any{}
	for _, options := range stored {
		for key, raw := range options {
			kind, known := schema[key]
			if !known || !profile.Stored(key) {
				continue
			}
			value, err := config.Convert(kind, raw)
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

// Upload splits options into what a service stores for itself and what lies in the service "common".
func Upload(values config.Values) (own, common Stored) {
	own, common = Stored{}, Stored{}
	for key, value := range values {
		switch {
		case !profile.Stored(key):
		case profile.Shared(key):
			common[key] = value
		default:
			own[key] = value
		}
	}
	return own, common
}

// LogChanges prints what the stored configuration changed, as the services do.
func LogChanges(changed map[string][2]any) {
	if len(changed) == 0 {
		return
	}
	text, err := json.Marshal(changed)
	if err == nil {
		log.Printf("Options changed: %s", text)
	}
}

// SyncOptions merges the stored configuration of the service and of "common" over the file, and uploads the merge.
// Before keystone lets it read, or before the service is registered, the file stands.
func (c *Client) SyncOptions(ctx context.Context, file config.Values, p profile.Profile) config.Values {
	ownID, own, ownErr := c.stored(ctx, p.StoredIn)
	commonID, common, commonErr := c.stored(ctx, "common")
	for _, err := range []error{ownErr, commonErr} {
		if err != nil {
			log.Printf("reading stored configuration: %v", err)
		}
	}
	merged, changed := Merge(file, p.Schema(), own, common)
	LogChanges(changed)
	ownUpload, commonUpload := Upload(merged)
	if ownID != "" && ownErr == nil {
		c.upload(ctx, ownID, ownUpload, "")
	}
	maps.DeleteFunc(commonUpload, func(key string, _ any) bool { _, have := common[key]; return have })
	if commonID != "" && commonErr == nil && len(commonUpload) > 0 {
		c.upload(ctx, commonID, commonUpload, "update")
	}
	return merged
}

func (c *Client) stored(ctx context.Context, serviceType string) (string, Stored, error) {
	id, err := c.ServiceID(ctx, serviceType)
	if err != nil || id == "" {
		return "", nil, err
	}
	var answer struct {
		Config struct{ Default Stored }
	}
	if err := c.Identity(ctx, http.MethodGet, "/services/"+id+"/config", nil, &answer); err != nil {
		return "", nil, err
	}
	return id, answer.Config.Default, nil
}

func (c *Client) upload(ctx context.Context, id string, options Stored, action string) {
	service := map[string]any{"config": map[string]any{"default": options}}
	if action != "" {
		service["action"] = action
	}
	body := map[string]any{"service": service}
	if err := c.Identity(ctx, http.MethodPost, "/services/"+id+"/config", body, nil); err != nil {
		log.Print(fmt.Errorf("uploading configuration: %w", err))
	}
}
