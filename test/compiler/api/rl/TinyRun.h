// The arguments of `tessera rl` for a small model without weights, in a folder
// of its own.
#pragma once
#include "compiler/api/rl/RlSetup.h"
#include "test/support/LettersTokenizer.h"
#include "test/support/ScratchDirectory.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace tessera::testing {

class TinyRun : public ::testing::Test {
protected:
  TinyRun() {
    std::filesystem::create_directory(scratch / "model");
    std::filesystem::copy_file(TESSERA_SPECS "/tiny-gpt2/config.json",
                               scratch / "model/config.json");
    write("model/tokenizer.json",
          lettersTokenizerJson(R"("a": 0, "b": 1, "c": 2)"));
    write("prompts.jsonl", "{\"prompt\": \"abc\"}\n{\"prompt\": \"a\"}\n");
    arguments.place = scratch / "model";
    arguments.prompts = scratch / "prompts.jsonl";
    arguments.reward = "true";
    arguments.cache = "off";
    arguments.set = {"batch.sequence=32", "batch.micro=16", "rollout.prompts=2",
                     "rollout.group=3", "rollout.max_tokens=8"};
    arguments.train.out = scratch / "run";
    arguments.note = [this](std::string_view line) {
      notes.emplace_back(line);
    };
  }
  void write(const std::string &name, const std::string &text) {
    std::ofstream(scratch / name) << text;
  }
  /// Empty: none.
  std::string errorOfCheck() {
    const Status status = checkRun(arguments, nullptr, source, recipe);
    return status.ok() ? "" : std::string(status.message());
  }

  ScratchDirectory scratch;
  RlArguments arguments;
  std::vector<std::string> notes;
  std::optional<ModelSource> source;
  recipe::Recipe recipe;
};

} // namespace tessera::testing
