# The service: `omoide serve` with the extras that it uses, as a user of its own.
FROM python:3.13-slim AS build
WORKDIR /build
COPY requirements/dev.txt ./requirements/
# The versions that the tests run with; without hashes, because pip wants one for the package itself as well.
RUN sed -E '/^ /d; s/ *\\$//' requirements/dev.txt > constraints.txt
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python3 -m venv /srv/omoide \
    && /srv/omoide/bin/pip install --no-cache-dir --only-binary :all: --no-binary omoide \
        --constraint constraints.txt '.[cli,documents,mcp,otel,postgres,redis,server,vector]'

FROM python:3.13-slim
RUN useradd --create-home --home-dir /var/lib/omoide --user-group omoide
COPY --from=build /srv/omoide /srv/omoide
ENV PATH=/srv/omoide/bin:$PATH OMOIDE_STORE=sqlite:////var/lib/omoide/memory.db OMOIDE_PROJECT=
USER omoide
WORKDIR /var/lib/omoide
VOLUME /var/lib/omoide
EXPOSE 8765
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s \
    CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8765/health', timeout=3)"]
ENTRYPOINT ["omoide"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8765"]
