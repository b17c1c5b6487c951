#include "tools/tessera/QuantOptions.h"
#include <CLI/CLI.hpp>

void tessera::addQuantOptions(CLI::App &command,
                              std::vector<std::string> &set) {
  auto add = [&](const char *flag, const char *key, const char *help) {
    return command.add_option_function<std::string>(
        flag,
        [&set, key](const std::string &value) {
          set.push_back(std::string(key) + "=" + value);
        },
        help);
  };
  add("--quant", "inference.quant",
      "quantize the matrices of linear layers to int8, int4 (with an int8 "
      "head) or fp8 (e4m3) with scales; none: store them in the compute "
      "precision")
      ->check(CLI::IsMember({"none", "int8", "int4", "fp8"}))
      ->type_name("KIND");
  add("--quant-group", "inference.group",
      "weights of a row per scale (default: 32)")
      ->check(CLI::IsMember({"32", "64", "128"}))
      ->type_name("N");
  command.add_flag_callback(
      "--quant-zeros", [&set] { set.push_back("inference.zeros=groups"); },
      "one zero point per group in addition to the scale (not for the head, "
      "nor for fp8)");
}

void tessera::addKvOption(CLI::App &command, std::vector<std::string> &set) {
  command
      .add_option_function<std::string>(
          "--kv",
          [&set](const std::string &kind) {
            set.push_back("inference.kv=" + kind);
          },
          "type of the KV cache: int8, with a scale for each token and head; "
          "auto: the compute precision")
      ->check(CLI::IsMember({"auto", "int8"}))
      ->type_name("KIND");
}
