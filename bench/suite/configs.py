"""The configuration of each server: one text for each, with what the others have as well. Every server
keeps files open where it can, writes an access log only where the scenario says so, and never ends a connection by count."""
from .site import PARTS


def sekisho(plan):
    return f"""
user root;
cgi_allow_root on;
worker_processes {plan.workers};
pid {plan.base}/sekisho.pid;
events {{ worker_connections 19500; }}
http {{
    access_log {_log(plan, "sekisho")};
    client_max_body_size 1g;
    keepalive_requests 100000000;
    keepalive_timeout 300s;
    {_upstreams(plan)}
    {_nginx_servers(plan, "http2 on; ", f'''
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
events {{ worker_connections 19500; }}
http {{
    include /etc/nginx/mime.types;
    access_log {_log(plan, "nginx")};
    sendfile on;
    tcp_nopush on;
    keepalive_requests 100000000;
    keepalive_timeout 300s;
    open_file_cache max=10000;
    client_max_body_size 1g;
    server_names_hash_max_size 8192;
    server_names_hash_bucket_size 128;
{temporary}
    {_upstreams(plan)}
    {_nginx_servers(plan, "", f'''
        location /listing/ {{ autoindex on; }}
        location /upload/ {{ dav_methods PUT DELETE; }}
        location /cgi-bin/ {{
            fastcgi_pass unix:{plan.base}/fcgiwrap.sock;
            include /etc/nginx/fastcgi_params;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
        }}''')}
}}
"""


def _log(plan, name):
    return f"{plan.base}/{name}.access" if plan.has_log else "off"


def _upstreams(plan):
    """The backends, where the scenario has them."""
    if not plan.backends:
        return ""
    backends = plan.backends
    return f"""upstream small {{ server 127.0.0.1:{backends.small}; keepalive 64; }}
    upstream big {{ server 127.0.0.1:{backends.big}; keepalive 64; }}
    upstream php {{ server unix:{backends.php}; keepalive 4; }}"""


KEPT = 'proxy_http_version 1.1; proxy_set_header Connection "";'


def _nginx_servers(plan, http2, locations):
    """One server, or as many as `plan` has: in the language that nginx and Sekisho share. nginx 1.22 has no `http2 on`."""
    word = "" if not plan.certificate else " ssl" if http2 else " ssl http2"
    listen = f"listen 127.0.0.1:{plan.port}{word} backlog=4096;"
    if plan.certificate:
        listen += (f" {http2}ssl_certificate {plan.certificate.chain}; ssl_certificate_key {plan.certificate.key};"
                   " ssl_protocols TLSv1.2 TLSv1.3; ssl_session_cache shared:bench:10m;")
    if plan.backends:
        locations = f"""
        location / {{ proxy_pass http://small; {KEPT} }}
        location /big {{ proxy_pass http://big; {KEPT} }}
        location /socket {{
            proxy_pass http://127.0.0.1:{plan.backends.sockets};
            proxy_http_version 1.1;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection "upgrade";
            proxy_read_timeout 300s;
        }}
        location ~ [.]php$ {{
            fastcgi_pass php;
            fastcgi_keep_conn on;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            fastcgi_param REQUEST_METHOD $request_method;
            fastcgi_param QUERY_STRING $query_string;
        }}"""
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
    modules, more = ["dirlisting", "cgi", "webdav", "staticfile"], ""
    if plan.has_log:
        modules.append("accesslog")
        more += f'accesslog.filename = "{plan.base}/lighttpd.access"\n'
    if plan.certificate:
        modules.append("openssl")
        more += f'ssl.engine = "enable"\nssl.pemfile = "{plan.certificate.both}"\n'
    if plan.backends:
        modules += ["proxy", "fastcgi"]
        to = lambda port: f'proxy.server = ( "" => (( "host" => "127.0.0.1", "port" => {port} )) )'  # noqa: E731
        more += f"""$HTTP["url"] =~ "^/big" {{ {to(plan.backends.big)} }}
else $HTTP["url"] =~ "[.]php$" {{
    fastcgi.server = ( ".php" => (( "socket" => "{plan.backends.php}", "broken-scriptfilename" => "enable" )) )
}}
else {{ {to(plan.backends.small)} }}
"""
    return f"""
server.modules = ( {", ".join(f'"mod_{name}"' for name in modules)} )
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
{more}{vhosts}"""


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
    elif plan.backends:
        hosts = f"""  default:
    paths:
      /big:
        proxy.reverse.url: http://127.0.0.1:{plan.backends.big}/
      /:
        proxy.reverse.url: http://127.0.0.1:{plan.backends.small}/
"""
    else:
        hosts = f"""  default:
    paths:
      /listing/:
        file.dir: {plan.root}/listing
        file.dirlisting: ON
      /:
        file.dir: {plan.root}
"""
    tls = f"""
  ssl:
    certificate-file: {plan.certificate.chain}
    key-file: {plan.certificate.key}
    minimum-version: TLSv1.2""" if plan.certificate else ""
    log = f"\naccess-log: {plan.base}/h2o.access" if plan.has_log else ""
    return f"""
num-threads: {plan.workers}
max-connections: 15000
http1-request-timeout: 300
http2-idle-timeout: 300
proxy.timeout.keepalive: 300000{log}
listen:
  host: 127.0.0.1
  port: {plan.port}{tls}
user: root
hosts:
{hosts}"""




def haproxy(plan):
    return f"""
global
    nbthread 1
    maxconn 9100
defaults
    mode http
    timeout client 300s
    timeout server 300s
    timeout connect 5s
    http-reuse always
frontend front
    bind 127.0.0.1:{plan.port} backlog 4096
    use_backend big if {{ path_beg /big }}
    use_backend sockets if {{ path_beg /socket }}
    default_backend small
backend small
    server one 127.0.0.1:{plan.backends.small}
backend big
    server one 127.0.0.1:{plan.backends.big}
backend sockets
    timeout tunnel 300s
    server one 127.0.0.1:{plan.backends.sockets}
"""
