# make        build into build/, binaries in build/bin/
# make demo   install, build, compile a spec, train on manual pages, generate
# make check  build and run the tests that are quick
# make test   build and run every test but the sweeps, including source formatting
# make sweep  build and run every test, with more cases of some
# make check-format, make check-tidy   clang-format, clang-tidy (an hour)
BUILD ?= build
CMAKE_FLAGS ?=

.PHONY: all deps demo check test sweep check-format check-tidy clean
all: $(BUILD)/build.ninja
	@cmake --build $(BUILD)

$(BUILD)/build.ninja: | deps
	@cmake -S . -B $(BUILD) -G Ninja -DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19 $(CMAKE_FLAGS)

# Installs only what is missing, so the second time is free.
deps:
	@scripts/install-deps.sh

# Without the tests, which take most of a first build.
demo: $(BUILD)/build.ninja
	@cmake --build $(BUILD) --target tessera
	@scripts/demo.sh $(BUILD)

check: all
	@scripts/run-tests.sh $(BUILD) --fast

test: all
	@scripts/run-tests.sh $(BUILD)

sweep: all
	@scripts/run-tests.sh $(BUILD) --sweep

check-format:
	@scripts/check-format.sh

# In a build of its own, where each source is compiled alone. Tests are not checked.
check-tidy: | deps
	@cmake -S . -B $(BUILD)-tidy -G Ninja -DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19 -DTESSERA_UNITY=OFF -DTESSERA_BUILD_TESTS=OFF $(CMAKE_FLAGS)
	@cmake --build $(BUILD)-tidy
	@run-clang-tidy-19 -quiet -p $(BUILD)-tidy '$(CURDIR)/(bench|compiler|dialects|models|passes|runtime|tools)/'

clean:
	@rm -rf $(BUILD) $(BUILD)-tidy
