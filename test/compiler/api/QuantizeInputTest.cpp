// What cannot be quantized or measured is said before weights are read: these
// models have none.
#include "compiler/api/QuantizeInput.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include "test/support/LettersTokenizer.h"
#include "test/support/ScratchDirectory.h"

namespace tessera {
namespace {

class QuantizeInput : public ::testing::Test {
protected:
  QuantizeInput() {
    std::filesystem::create_directory(scratch / "model");
    useModel("llama-15m");
    write("model/tokenizer.json",
          testing::lettersTokenizerJson(R"("a": 0, "b": 1, "c": 2)"));
    settings.place = scratch / "model";
    settings.quant = {"inference.quant=int4"};
    settings.window = 64;
  }
  void useModel(const std::string &name) {
    std::filesystem::copy_file(
        TESSERA_SPECS "/" + name + "/config.json",
        scratch / "model/config.json",
        std::filesystem::copy_options::overwrite_existing);
  }
  std::string write(const std::string &name, const std::string &text) {
    std::ofstream(scratch / name) << text;
    return scratch / name;
  }
  std::string error() { return std::string(quantize(settings).message()); }
  void expectError(const std::string &part) {
    EXPECT_NE(error().find(part), std::string::npos) << error();
  }

  testing::ScratchDirectory scratch;
  QuantizeSettings settings;
};

TEST_F(QuantizeInput, HasSomethingToDo) {
  EXPECT_EQ(error(), "nothing to do: give -o DIR2, --text FILE or both");
  settings.output = settings.place; // is there already
  expectError("is there already; choose another directory");
}

// Options that contradict each other, whatever the model.
TEST_F(QuantizeInput, IsAskedForOneThing) {
  settings.place = "absent";
  settings.output = scratch / "made";
  settings.quant = {"inference.quant=none"};
  EXPECT_EQ(error(), "--quant none does not change weights; omit -o");
  settings.output.clear();
  settings.calibrate = "x";
  expectError("no scales to calibrate; omit --calibrate");
  settings.calibrate.clear();
  settings.quant.emplace_back("inference.group=64");
  expectError("omit --quant-group and --quant-zeros");
  settings.quant = {"inference.quant=fp8", "inference.zeros=groups"};
  settings.output = scratch / "made";
  expectError("--quant fp8 has no zero points");
  settings.quant = {"inference.quant=int8", "inference.kv=int8"};
  expectError("--kv only affects the measurement");
}

TEST_F(QuantizeInput, ReadsText) {
  settings.text = write("text", "");
  EXPECT_EQ(error(), settings.text + ": is empty; give a file with text");
  write("text", std::string("a\0b", 3));
  EXPECT_EQ(error(), settings.text + ": is not UTF-8 text");
  write("text", "a\xff");
  EXPECT_EQ(error(), settings.text + ": is not UTF-8 text");
  write("text", "a");
  expectError("has one token, which leaves none to predict");
}

TEST_F(QuantizeInput, HasWindowsThatFitTheModel) {
  settings.text = write("text", "abcabc");
  settings.window = 1025;
  EXPECT_EQ(error(), "windows of 1025 tokens after 0 start tokens do not fit "
                     "the model's 1024 positions; lower --window");
}

TEST_F(QuantizeInput, CalibratesOnAWholeWindow) {
  settings.output = scratch / "made";
  settings.calibrate = write("sample", "abcabc");
  expectError("--calibrate " + settings.calibrate + ": has 6 tokens; ");
  EXPECT_FALSE(std::filesystem::exists(settings.output));
}

TEST_F(QuantizeInput, WritesMatricesThatCanBePacked) {
  settings.output = scratch / "made";
  useModel("tiny-gpt2"); // whose matrices are transposed
  expectError("is kept as [in, out], which compressed-tensors does not have");
  EXPECT_FALSE(std::filesystem::exists(settings.output));
}

TEST_F(QuantizeInput, NeedsAModelDirectory) {
  std::filesystem::remove(scratch / "model/config.json");
  settings.output = scratch / "made";
  EXPECT_EQ(error(), "'" + settings.place +
                         "' is not a model directory: it has no config.json");
}

} // namespace
} // namespace tessera
