// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"fmt"
	"io/fs"
	"log"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"

	"yunion.io/x/ocadm/test/fakecloud/rest"
)

// climc has a few commands of the real one, with the account of OS_* in the environment, and "sleep", which stays up as the
// container does. The real entry point first asks region for an SSH key, and ends without an answer.
func climc(ctx context.Context, args []string) error {
	if len(args) == 0 {
		args = []string{"help"}
	}
	switch args[0] {
	case "sleep":
		if err := climcCommand(ctx, "zone-list"); err != nil {
			return err
		}
		log.Print("climc is up")
		<-ctx.Done()
		return nil
	case "token", "endpoint-list", "service-list", "zone-list", "image-list", "action-show":
		return climcCommand(ctx, args[0])
	}
	return fmt.Errorf("climc: commands are token, endpoint-list, service-list, zone-list, image-list, action-show, sleep")
}

func climcCommand(ctx context.Context, command string) error {
	session, err := climcSession()
	if err != nil {
		return err
	}
	token, err := session.Login(ctx)
	if err != nil {
		return fmt.Errorf("climc: %w", err)
	}
	if command == "token" {
		fmt.Println(token.ID)
		return nil
	}
	lists := map[string]struct {
		serviceType, path, key string
		columns                []string
	}{
		"endpoint-list": {"identity", "/endpoints", "endpoints", []string{"service_type", "interface", "region_id", "enabled", "url"}},
		"service-list":  {"identity", "/services", "services", []string{"id", "name", "type", "enabled"}},
		"zone-list":     {"compute_v2", "/zones", "zones", []string{"id", "name", "status"}},
		"image-list":    {"image", "/images", "images", []string{"id", "name", "status"}},
		"action-show":   {"log", "/actions", "actions", []string{"id", "name", "created_at"}},
	}
	list := lists[command]
	target := strings.TrimSuffix(os.Getenv("OS_AUTH_URL"), "/")
	if list.serviceType != "identity" {
		endpoint, found := token.Endpoint(list.serviceType, endpointType(), os.Getenv("OS_REGION_NAME"))
		if !found {
			return fmt.Errorf("climc: no endpoint of %s in region %q", list.serviceType, os.Getenv("OS_REGION_NAME"))
		}
		target = endpoint
	}
	var answer map[string]any
	if err := session.Call(ctx, http.MethodGet, target+list.path, nil, &answer); err != nil {
		return fmt.Errorf("climc: %w", err)
	}
	return printTable(answer[list.key], list.columns)
}

func printTable(rows any, columns []string) error {
	out := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(out, strings.ToUpper(strings.Join(columns, "\t")))
	items, _ := rows.([]any)
	for _, item := range items {
		record, _ := item.(map[string]any)
		var cells []string
		for _, column := range columns {
			cells = append(cells, rest.Record(record).Text(column))
		}
		fmt.Fprintln(out, strings.Join(cells, "\t"))
	}
	return out.Flush()
}

// endpointType turns publicURL and internalURL into the names of interfaces.
func endpointType() string {
	if kind := strings.TrimSuffix(os.Getenv("OS_ENDPOINT_TYPE"), "URL"); kind != "" {
		return kind
	}
	return "internal"
}

func climcSession() (*Client, error) {
	for _, name := range []string{"OS_AUTH_URL", "OS_USERNAME", "OS_PASSWORD"} {
		if os.Getenv(name) == "" {
			return nil, fmt.Errorf("climc: missing %s", name)
		}
	}
	authorities := os.Getenv("YUNION_CACERT")
	if authorities == "" {
		if _, err := fs.Stat(os.DirFS("/etc/yunion/pki"), "ca.crt"); err == nil {
			authorities = "/etc/yunion/pki/ca.crt"
		}
	}
	roots, err := rest.Authorities(authorities)
	if err != nil {
		return nil, err
	}
	domain, project := os.Getenv("OS_DOMAIN_NAME"), os.Getenv("OS_PROJECT_NAME")
	if domain == "" {
		domain = "Default"
	}
	if project == "" {
		project = "system"
	}
	return New(Credentials{
		AuthURL: strings.TrimSuffix(os.Getenv("OS_AUTH_URL"), "/"), User: os.Getenv("OS_USERNAME"), Password: os.Getenv("OS_PASSWORD"),
		Domain: domain, Project: project, Region: os.Getenv("OS_REGION_NAME"),
		Authorities: roots, Insecure: os.Getenv("YUNION_INSECURE") == "true",
	}), nil
}
