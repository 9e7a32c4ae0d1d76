// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"slices"
	"strings"

	"yunion.io/x/ocadm/test/lab/cache"
	"yunion.io/x/ocadm/test/lab/debian"
)

// The users of Debian and of the images whose names ours have.
const (
	passwd = "root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33:www-data:/var/www:/sbin/nologin\n" +
		"mysql:x:999:999:MariaDB:/var/lib/mysql:/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n"
	group = "root:x:0:\ntty:x:5:\nwww-data:x:33:\nmysql:x:999:\nnogroup:x:65534:\n"
)

// networkTree contains the programs that kube-proxy and flanneld call.
func networkTree() debian.Tree {
	links := map[string]string{}
	// Debian's alternatives, as its package scripts would set them.
	for _, v := range []string{"iptables", "ip6tables"} {
		for _, suffix := range []string{"", "-save", "-restore"} {
			links["usr/sbin/"+v+suffix] = "xtables-nft-multi"
		}
	}
	return debian.Tree{
		Name: "image-network", Variant: "extract",
		Packages: []string{"iptables", "nftables", "conntrack", "ipset", "iproute2"},
		Links:    links,
		Remove:   append(noPerl(), "usr/lib/*-linux-gnu/gconv", "usr/bin/rdma", "usr/sbin/arpd", "usr/sbin/genl"),
	}
}

// nginxTree is the web server that replaces the web console's image. Its sites come from the pod.
func nginxTree() debian.Tree {
	return debian.Tree{
		Name: "image-nginx", Variant: "extract",
		Packages: []string{"nginx-light"},
		Files: map[string]string{
			"etc/nginx/nginx.conf": "user www-data;\nworker_processes auto;\npid /run/nginx.pid;\nerror_log /dev/stderr notice;\n" +
				"events { worker_connections 1024; }\n" +
				"http {\n  include /etc/nginx/mime.types;\n  default_type application/octet-stream;\n  access_log /dev/stdout;\n" +
				"  sendfile on;\n  keepalive_timeout 65;\n  include /etc/nginx/conf.d/*.conf;\n}\n",
			"usr/share/nginx/html/web/index.html":       webPage,
			"usr/share/nginx/html/dashboard/index.html": webPage,
			"var/lib/nginx/.keep":                       "",
			"var/log/nginx/.keep":                       "",
			"run/.keep":                                 "",
		},
		Remove: append(noPerl(), "usr/lib/*-linux-gnu/gconv", "etc/nginx/sites-enabled", "usr/share/vim", "usr/bin/rdma", "usr/sbin/arpd"),
	}
}

const webPage = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Cloudpods (lab)</title></head>\n" +
	"<body><h1>The lab's web console</h1><p>This page stands in for the web console, whose image the lab does not have.</p></body></html>\n"

// mariadbTree is the server and its clients, without Perl.
func mariadbTree() debian.Tree {
	return debian.Tree{
		Name: "image-mariadb", Variant: "extract",
		Packages: []string{
			"mariadb-server-core", "mariadb-client-core", "mariadb-client", "bash", "dash", "coreutils", "sed", "grep", "gawk", "hostname",
			"findutils", "gzip", "tzdata",
		},
		Files: map[string]string{
			"etc/mysql/conf.d/.keep":         "",
			"etc/mysql/mariadb.conf.d/.keep": "",
			"etc/mysql/my.cnf": "[client-server]\nsocket=/run/mysqld/mysqld.sock\n!includedir /etc/mysql/conf.d/\n!includedir /etc/mysql/mariadb.conf.d/\n" +
				"[mariadbd]\nskip-name-resolve\ndatadir=/var/lib/mysql\n",
		},
		Links: map[string]string{"bin/sh": "dash", "usr/bin/awk": "gawk"},
		Remove: append(noPerl(),
			"usr/bin/mariadb-slap", "usr/bin/mariadb-show", "usr/bin/mariadb-import", "usr/bin/mariadb-plugin", "usr/bin/mariadb-binlog",
			"usr/bin/aria_*", "usr/bin/myisam*", "usr/bin/innochecksum", "usr/lib/*-linux-gnu/gconv", "usr/share/zoneinfo/right",
			"usr/lib/systemd", "lib/systemd", "usr/lib/udev", "lib/udev", "usr/share/mysql/*/errmsg-*", "boot", "home", "root", "media", "mnt", "srv"),
	}
}

// keepalivedTree is keepalived. Its configuration comes from the pod.
func keepalivedTree() debian.Tree {
	return debian.Tree{
		Name: "image-keepalived", Variant: "extract",
		Packages: []string{"keepalived"},
		Files:    map[string]string{"run/.keep": ""},
		// Its SNMP library depends on Perl's library.
		Remove: append(slices.DeleteFunc(noPerl(), func(p string) bool { return strings.HasSuffix(p, "/libperl*") }),
			"usr/lib/*-linux-gnu/gconv", "usr/share/snmp", "etc/keepalived", "usr/bin/rdma", "usr/sbin/arpd"),
	}
}

// Keepalived returns a directory with the root of the keepalived image.
func Keepalived(ctx context.Context, logf cache.Logf) (string, error) {
	return debian.Build(ctx, keepalivedTree(), logf)
}

func noPerl() []string {
	return []string{
		"usr/bin/perl*", "usr/share/perl*", "usr/lib/*-linux-gnu/perl*", "usr/lib/x86_64-linux-gnu/libperl*", "usr/share/bash-completion",
		"usr/share/doc-base", "usr/share/gcc", "usr/share/gdb", "usr/share/pixmaps", "usr/share/applications", "usr/share/menu", "dev", "proc", "sys",
		"etc/apt", "var/lib/dpkg", "var/lib/apt", "etc/init.d", "etc/cron*", "etc/logrotate.d",
	}
}

// trees returns the Debian layers by name.
func trees() map[string]debian.Tree {
	return map[string]debian.Tree{"network": networkTree(), "nginx": nginxTree(), "mariadb": mariadbTree(), "keepalived": keepalivedTree()}
}
