"""The configuration of each server: one text for each, with what the others have as well. Every server
keeps files open where it can, writes no access log, and never ends a connection by count."""
from .site import PARTS


def sekisho(plan):
    return f"""
user root;
cgi_allow_root on;
worker_processes {plan.workers};
pid {plan.base}/sekisho.pid;
events {{ worker_connections 15000; }}
http {{
    access_log off;
    client_max_body_size 1g;
    keepalive_requests 100000000;
    keepalive_timeout 300s;
    {_nginx_servers(plan, f'''
        location /listing/ {{ autoindex on; }}
        location /upload/ {{ dav_methods PUT DELETE; }}
        location /cgi-bin/ {{ cgi on; }}''')}
}}
"""


def nginx(plan):
    temporary = "".join(
        f"    {kind}_temp_path {plan.base}/nginx-{kind};\n"
        for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"])
    return f"""
worker_processes {plan.workers};
daemon off;
user root;
pid {plan.base}/nginx.pid;
error_log {plan.base}/nginx.err crit;
worker_rlimit_nofile 20000;
events {{ worker_connections 15000; }}
http {{
    include /etc/nginx/mime.types;
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 100000000;
    keepalive_timeout 300s;
    open_file_cache max=10000;
    client_max_body_size 1g;
    server_names_hash_max_size 8192;
    server_names_hash_bucket_size 128;
{temporary}
    {_nginx_servers(plan, f'''
        location /listing/ {{ autoindex on; }}
        location /upload/ {{ dav_methods PUT DELETE; }}
        location /cgi-bin/ {{
            fastcgi_pass unix:{plan.base}/fcgiwrap.sock;
            include /etc/nginx/fastcgi_params;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
        }}''')}
}}
"""


def _nginx_servers(plan, locations):
    """One server, or as many as `plan` has: in the language that nginx and Sekisho share."""
    listen = f"listen 127.0.0.1:{plan.port} backlog=4096;"
    if not plan.vhosts:
        return f"server {{\n        {listen}\n        root {plan.root};{locations}\n    }}"
    parts = "".join(f"\n        location /part-{number}/ {{ }}" for number in range(PARTS))
    servers = (
        f"server {{\n        {listen if number == 0 else f'listen 127.0.0.1:{plan.port};'}\n"
        f"        server_name {vhost(number)};\n        root {plan.root};{parts}\n    }}"
        for number in range(plan.vhosts))
    return "\n    ".join(servers)


def vhost(number):
    """The name of one of the many servers."""
    return f"site-{number:04d}.example"


def lighttpd(plan):
    vhosts = "".join(
        f'$HTTP["host"] == "{vhost(number)}" {{ server.document-root = "{plan.root}" }}\n'
        for number in range(plan.vhosts or 0))
    return f"""
server.modules = ( "mod_dirlisting", "mod_cgi", "mod_webdav", "mod_staticfile" )
server.document-root = "{plan.root}"
server.port = {plan.port}
server.bind = "127.0.0.1"
server.max-fds = 20000
server.max-connections = 15000
server.max-keep-alive-requests = 100000000
server.max-keep-alive-idle = 300
server.listen-backlog = 4096
{f"server.max-worker = {plan.workers}" if plan.workers > 1 else ""}
index-file.names = ( "index.html" )
mimetype.assign = ( ".html" => "text/html", ".txt" => "text/plain", "" => "application/octet-stream" )
cgi.assign = ( ".cgi" => "" )
$HTTP["url"] =~ "^/listing/" {{ dir-listing.activate = "enable" }}
$HTTP["url"] =~ "^/upload/" {{ webdav.activate = "enable" }}
{vhosts}"""


def apache(plan):
    modules = ["mpm_event", "authz_core", "dir", "mime", "alias", "autoindex", "cgid", "dav", "dav_fs"]
    load = "\n".join(
        f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so" for name in modules)
    return f"""
ServerRoot {plan.base}
PidFile {plan.base}/apache.pid
ErrorLog {plan.base}/apache.err
LogLevel crit
ServerName localhost
Listen 127.0.0.1:{plan.port}
{load}
ScriptSock {plan.base}/cgid.sock
User www-data
Group www-data
StartServers 1
ServerLimit 1
ThreadsPerChild 64
MaxRequestWorkers 64
AsyncRequestWorkerFactor 500
MaxKeepAliveRequests 0
KeepAliveTimeout 300
EnableSendfile On
DocumentRoot {plan.root}
TypesConfig /etc/mime.types
DavLockDB {plan.base}/davlock
<Directory {plan.root}>
    Require all granted
    Options -Indexes
    AllowOverride None
</Directory>
<Directory {plan.root}/listing>
    Options +Indexes
</Directory>
<Directory {plan.root}/upload>
    Dav On
</Directory>
<Directory {plan.root}/cgi-bin>
    Options +ExecCGI
    SetHandler cgi-script
</Directory>
"""


def caddy(plan):
    return f"""
{{
    admin off
    auto_https off
    log {{
        level ERROR
    }}
}}
http://127.0.0.1:{plan.port} {{
    root * {plan.root}
    handle /listing/* {{
        file_server browse
    }}
    file_server
}}
"""


def h2o(plan):
    if plan.vhosts:
        paths = "".join(
            f"      /part-{number}/:\n        file.dir: {plan.root}/part-{number}\n"
            for number in range(PARTS))
        hosts = "".join(
            f"  \"{vhost(number)}:{plan.port}\":\n    paths:\n{paths}" for number in range(plan.vhosts))
    else:
        hosts = f"""  default:
    paths:
      /listing/:
        file.dir: {plan.root}/listing
        file.dirlisting: ON
      /:
        file.dir: {plan.root}
"""
    return f"""
num-threads: {plan.workers}
max-connections: 15000
http1-request-timeout: 300
listen:
  host: 127.0.0.1
  port: {plan.port}
user: root
hosts:
{hosts}"""


