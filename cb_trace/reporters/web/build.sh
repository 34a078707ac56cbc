#!/usr/bin/env bash
# Build dist/ from src/. Needs node and npm; the built files are committed, so only a change to src/
# needs this. tests/web checks dist/sources.sha256 without node.
set -euo pipefail
cd "$(dirname "$0")"
npm ci --no-audit --no-fund --silent
mkdir -p dist
npx esbuild src/main.js --bundle --format=iife --target=es2022 --minify --charset=utf8 \
  --legal-comments=none --outfile=dist/report.js --log-level=warning
npx esbuild src/style.css --minify --charset=utf8 --outfile=dist/report.css --log-level=warning
cp src/template.html dist/template.html
if grep -qi '</script\|<!--' dist/report.js; then
  echo "dist/report.js holds text that would end its script element" >&2
  exit 1
fi
LC_ALL=C sha256sum package.json package-lock.json src/* dist/report.js dist/report.css dist/template.html \
  > dist/sources.sha256
wc -c dist/report.js dist/report.css
