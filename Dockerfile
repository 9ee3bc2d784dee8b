# Metier's server in a container. Everything it keeps (chats, records, the token, skills) is below /data, a volume.
#
#   docker build -t metier .
#   docker run -p 127.0.0.1:8765:8765 -v metier:/data -e METIER_TOKEN=... metier
#
# docs/scale.md has a compose file with PostgreSQL, and says what scripts need to run in a container.
ARG BASE=python:3.13-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
COPY pyproject.toml README.md CHANGELOG.md LICENSE ./
COPY src ./src
RUN python3 -m venv /opt/metier \
    && /opt/metier/bin/pip install --no-cache-dir ".[web,models,mcp,postgres,otel,scripts]"

FROM ${BASE}
RUN apt-get update \
    && apt-get install -y --no-install-recommends bubblewrap \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/metier /opt/metier
RUN useradd --uid 10001 --home-dir /data --create-home metier && install -d -o metier /data/project/.agents/skills

ENV PATH=/opt/metier/bin:$PATH
USER metier
WORKDIR /data/project
VOLUME /data
EXPOSE 8765
HEALTHCHECK --interval=30s --start-period=10s CMD ["python3", "-c", \
    "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8765/healthz', timeout=5)"]
ENTRYPOINT ["metier"]
CMD ["serve", "--host", "0.0.0.0"]
