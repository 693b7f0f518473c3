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

wheel-test: ## Build the wheel and try it in an environment of its own
	rm -rf build/wheel && $(PYTHON) -m build --wheel --outdir build/wheel .
	$(PYTHON) -m venv build/wheel/venv && build/wheel/venv/bin/pip install -q build/wheel/*.whl
	cd build/wheel && venv/bin/python ../../tests/wheel_check.py ../..

readme: ## Rewrite the output that the README shows
	$(PYTHON) tests/test_readme.py

docs: ## Build the documentation site, warnings being errors
	$(PYTHON) -m sphinx -W --keep-going -q docs build/site

docs-output: ## Rewrite the output that the documentation shows
	for page in $$(find docs -name '*.md' | sort); do $(PYTHON) tests/docs/run_page.py --rewrite $$page; done

conformance: ## Run ONNX's backend tests here, in onnxruntime and in onnx's reference; write the page
	$(PYTHON) -m benchmarks.conformance --page docs/conformance.md

messages: ## List the texts for users that have no Chinese one
	$(PYTHON) tests/gecompiler/lang/message_sources.py

browsers: ## Tests of the page in Chromium, Firefox and WebKit, whose drivers must be there
	GEC_BROWSERS="chromium firefox webkit" xvfb-run -a $(PYTHON) -m pytest -q tests/gecompiler/html_report

screenshot: ## Take the README's picture of the HTML report (needs chromium and chromedriver)
	$(PYTHON) tests/gecompiler/html_report/screenshot.py docs/images/report.png

slow: ## Run the slow tests too
	$(PYTHON) -m pytest -m "slow or not slow"

search: ## Run the tests with property tests' examples drawn anew
	$(PYTHON) -m pytest --hypothesis-profile=search

nightly: ## Compare 2,000 random graphs with reference runtimes, pass by pass
	$(PYTHON) tests/differential/campaign.py --graphs 2000

fuzz: ## Run 10,000 damaged models and 2,000 damaged texts through the command line
	$(PYTHON) tests/fuzz/fuzz.py --models 10000 --texts 2000 --failures build/fuzz

mutation: ## Change the code in many small ways and see how many the tests notice (an hour)
	$(PYTHON) tests/mutation/mutation.py --sample 100

coverage: ## Tell which lines and branches the tests take
	rm -rf build/coverage && mkdir -p build/coverage
	$(PYTHON) -m coverage run -m pytest -n 0
	$(PYTHON) -m coverage combine -q && $(PYTHON) -m coverage report --skip-covered --sort=cover

.PHONY: browsers search mutation coverage fuzz nightly help test lint typing-tree types wheel-test readme conformance docs docs-output screenshot slow
