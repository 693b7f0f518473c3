.DEFAULT_GOAL := help
PYTHON ?= python

help: ## Show what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

test: ## Run the tests that CI runs
	$(PYTHON) -m pytest

lint: ## Lint and check the format
	ruff check . && ruff format --check .

typing-tree:
	@rm -rf build/typing && mkdir -p build/typing/gecompiler
	@for f in gecompiler/*; do ln -s ../../../$$f build/typing/$$f; done
	@for p in ir passes backends models; do ln -s ../../../$$p build/typing/gecompiler/$$p; done

types: typing-tree ## Check the types of the whole package
	cd build/typing && MYPYPATH=. mypy --config-file ../../pyproject.toml -p gecompiler

.PHONY: help test lint typing-tree types
