# Onceward as an image: `docker build -t onceward .`, and `docker compose up` for PostgreSQL, two replicas and a relay.
# What it runs as, keeps and needs: docs/how-to/run-in-containers.md. No secret is in it: they come from the environment.
FROM python:3.13-slim AS build
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY tools/pypi_readme.py tools/
COPY requirements/constraints.txt requirements/
COPY src src
# An environment of its own, so that one folder is all that goes on; the versions are those that the tests have passed with.
RUN python -m venv /opt/onceward \
    && /opt/onceward/bin/python -m pip install --no-cache-dir --disable-pip-version-check --constraint requirements/constraints.txt '.[serve,fast,sealed,sql-postgres]' \
    && /opt/onceward/bin/python -m pip uninstall --yes pip

FROM python:3.13-slim
COPY --from=build /opt/onceward /opt/onceward
# For databases in files, if there is no PostgreSQL: for the service alone, as it insists.
RUN install -d -m 700 -o 10001 -g 10001 /var/lib/onceward
ENV PATH=/opt/onceward/bin:$PATH \
    HOME=/var/lib/onceward \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    ONCEWARD_SERVE_HOST=0.0.0.0 \
    ONCEWARD_SERVE_PORT=8600 \
    ONCEWARD_SERVE_FOLDER=/var/lib/onceward/data
WORKDIR /var/lib/onceward
VOLUME /var/lib/onceward
# Nobody that the image, or the host, knows by name; a number lets Kubernetes see that it is not root.
USER 10001:10001
EXPOSE 8600
# Finishes what is under way (20 s at most), and exits with 0.
STOPSIGNAL SIGTERM
# Whether its store answers. urllib raises for 503, and for nobody there.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ['ONCEWARD_SERVE_PORT'] + '/ready', timeout=4)"]
CMD ["onceward", "serve"]
