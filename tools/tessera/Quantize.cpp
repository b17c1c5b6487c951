// tessera quantize: quantizes the weights of a Hugging Face model to integers
// or fp8, and measures the perplexity.
#include "compiler/api/QuantizeInput.h"
#include "tools/tessera/CacheOptions.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/QuantOptions.h"
#include <CLI/CLI.hpp>
#include <memory>

using namespace tessera;

static std::string isNamed(const std::string &place) {
  return place.empty() ? "must not be empty" : "";
}

static void addTextOptions(CLI::App &command, QuantizeSettings &settings) {
  command
      .add_option(
          "--text", settings.text,
          "measure the perplexity on this file, before and after quantization")
      ->type_name("FILE")
      ->check(isNamed);
  command
      .add_option("--calibrate", settings.calibrate,
                  "choose scales of input channels from activations on this "
                  "file (AWQ); a few thousand tokens suffice")
      ->type_name("FILE")
      ->check(isNamed);
  command
      .add_option("--window", settings.window,
                  "tokens per window of --text and --calibrate")
      ->check(CLI::Range(2, 1 << 16))
      ->capture_default_str();
}

void tessera::addQuantizeCommand(CLI::App &app, Invocation &invocation) {
  auto settings = std::make_shared<QuantizeSettings>();
  auto cacheGib = std::make_shared<uint64_t>(kCacheGib);
  CLI::App *command = app.add_subcommand(
      "quantize", "Quantize a Hugging Face model's weights to integers or fp8; "
                  "write them, and measure the perplexity");
  command
      ->add_option("DIR", settings->place,
                   "model directory (Hugging Face), or name of a model in the "
                   "Hugging Face cache")
      ->required();
  command
      ->add_option("-o,--output", settings->output,
                   "directory to create, with config.json and safetensors in "
                   "the format of compressed-tensors, for generate and serve")
      ->type_name("DIR2")
      ->check(isNamed);
  addQuantOptions(*command, settings->quant);
  addKvOption(*command, settings->quant);
  command->get_option("--kv")->description(
      "measure --text with an int8 KV cache, with a scale for each token and "
      "head; no effect on -o");
  command->get_option("--quant")
      ->description("quantize the matrices of linear layers to int8, int4 "
                    "(with an int8 head) or fp8 (e4m3) with scales; none: "
                    "measure --text with the original weights")
      ->required();
  addTextOptions(*command, *settings);
  addCacheOptions(*command, settings->decoder.cache, *cacheGib);
  command->add_option("--threads", settings->threads, "0: all processors")
      ->envname("TESSERA_THREADS")
      ->capture_default_str();
  command->callback([=, &invocation] {
    settings->decoder.cacheBytes = *cacheGib << 30;
    if (Status status = quantize(*settings); !status.ok())
      invocation.fail(status.message().c_str());
  });
}
