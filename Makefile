# make        build into build/, binaries in build/bin/
# make demo   install, build, compile a spec, train on real text, generate
# make test   build and run every test
BUILD ?= build
CMAKE_FLAGS ?=

.PHONY: all deps demo test check-format clean
all: $(BUILD)/build.ninja
	@cmake --build $(BUILD)

$(BUILD)/build.ninja: | deps
	@cmake -S . -B $(BUILD) -G Ninja -DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19 $(CMAKE_FLAGS)

# Installs only what is missing, so that it costs nothing the second time.
deps:
	@scripts/install-deps.sh

# Without the tests, which take most of a first build.
demo: $(BUILD)/build.ninja
	@cmake --build $(BUILD) --target tessera
	@scripts/demo.sh $(BUILD)

test: all
	@scripts/run-tests.sh $(BUILD)

check-format:
	@git ls-files '*.cpp' '*.h' | xargs clang-format-19 --dry-run -Werror

clean:
	@rm -rf $(BUILD)
