// The formats of tool calls, by what chat templates contain. Sources: the
// templates of the models that are named.
#include "runtime/serve/ToolCalls.h"

namespace tessera::serve {

// Hermes 2 Pro (NousResearch 2024); Qwen 2.5 and 3 write it, too.
static constexpr ToolFormat kHermes = {
    .name = "Hermes", .open = "<tool_call>", .close = "</tool_call>"};
// Mistral's instruct models of 2024: one list for all calls.
static constexpr ToolFormat kMistral = {.name = "Mistral",
                                        .open = "[TOOL_CALLS]",
                                        .calls = ObjectCalls{.listOpen = " ["}};
// Mistral's models since 2025. Some write an identifier before [ARGS].
static constexpr ToolFormat kMistralNames = {
    .name = "Mistral 2025",
    .open = "[TOOL_CALLS]",
    .calls = NamedCalls{.separator = "[ARGS]", .nameEnd = "[CALL_ID]"}};
// Llama 3.1 and 3.2 (Meta 2024): the whole output is the call.
static constexpr ToolFormat kLlama = {
    .name = "Llama 3",
    .open = "<|python_tag|>",
    .calls = ObjectCalls{.arguments = "parameters", .mayBeBare = true}};
// DeepSeek-V3, R1 (2024).
static constexpr NamedCalls kDeepseekCalls = {
    .separator = "\n```json\n",
    .section = "<｜tool▁calls▁begin｜>",
    .sectionClose = "<｜tool▁calls▁end｜>",
    .again = "\n",
    .lastSpace = "\n"};
static constexpr ToolFormat kDeepseek = {
    .name = "DeepSeek V3",
    .open = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
    .close = "```<｜tool▁call▁end｜>",
    .calls = kDeepseekCalls};
// DeepSeek-V3.1 (2025).
static constexpr ToolFormat kDeepseek31 = {
    .name = "DeepSeek V3.1",
    .open = "<｜tool▁call▁begin｜>",
    .close = "<｜tool▁call▁end｜>",
    .calls = NamedCalls{.separator = "<｜tool▁sep｜>",
                        .section = kDeepseekCalls.section,
                        .sectionClose = kDeepseekCalls.sectionClose}};
// Kimi-K2 (Moonshot 2025): functions.NAME:NUMBER.
static constexpr NamedCalls kKimiCalls = {
    .separator = "<|tool_call_argument_begin|>",
    .section = "<|tool_calls_section_begin|>",
    .sectionClose = "<|tool_calls_section_end|>",
    .namePrefix = "functions.",
    .nameEnd = ":"};
static constexpr ToolFormat kKimi = {.name = "Kimi K2",
                                     .open = "<|tool_call_begin|>",
                                     .close = "<|tool_call_end|>",
                                     .calls = kKimiCalls};
// Granite 3 (IBM 2024).
static constexpr ToolFormat kGranite = {.name = "Granite 3",
                                        .open = "<|tool_call|>",
                                        .calls = ObjectCalls{.listOpen = "["}};
// Phi-4-mini (Microsoft 2025).
static constexpr ToolFormat kPhi = {.name = "Phi-4-mini",
                                    .open = "<|tool_call|>",
                                    .close = "<|/tool_call|>",
                                    .calls = ObjectCalls{.listOpen = "["}};
// HunYuan (Tencent 2025).
static constexpr ToolFormat kHunyuan = {.name = "HunYuan",
                                        .open = "<tool_calls>",
                                        .close = "</tool_calls>",
                                        .calls = ObjectCalls{.listOpen = "["}};
// Command R7B and Command A (Cohere 2024).
static constexpr ToolFormat kCohere = {
    .name = "Command R7B",
    .open = "<|START_ACTION|>",
    .close = "<|END_ACTION|>",
    .calls = ObjectCalls{
        .nameKey = "tool_name", .arguments = "parameters", .listOpen = "["}};

// Qwen3-Coder (Alibaba 2025).
static constexpr ArgumentTags kFunctionTags = {.open = "<function=",
                                               .nameEnd = ">",
                                               .key = "<parameter=",
                                               .keyEnd = ">",
                                               .value = "",
                                               .valueEnd = "</parameter>",
                                               .close = "</function>"};
static constexpr ToolFormat kCoder = {.name = "Qwen3-Coder",
                                      .open = "<tool_call>",
                                      .close = "</tool_call>",
                                      .calls = kFunctionTags};
// Seed-OSS (ByteDance 2025).
static constexpr ToolFormat kSeed = {.name = "Seed-OSS",
                                     .open = "<seed:tool_call>",
                                     .close = "</seed:tool_call>",
                                     .calls = kFunctionTags};
// GLM-4.5 and 4.6 (Zhipu 2025).
static constexpr ArgumentTags kKeyTags = {.open = "",
                                          .nameEnd = "",
                                          .key = "<arg_key>",
                                          .keyEnd = "</arg_key>",
                                          .value = "<arg_value>",
                                          .valueEnd = "</arg_value>",
                                          .close = ""};
static constexpr ToolFormat kGlm = {.name = "GLM-4.5",
                                    .open = "<tool_call>",
                                    .close = "</tool_call>",
                                    .calls = kKeyTags};
// MiniMax-M2 (2025).
static constexpr ToolFormat kMinimax = {
    .name = "MiniMax-M2",
    .open = "<minimax:tool_call>",
    .close = "</minimax:tool_call>",
    .calls = ArgumentTags{.open = "<invoke name=\"",
                          .nameEnd = "\">",
                          .key = "<parameter name=\"",
                          .keyEnd = "\">",
                          .value = "",
                          .valueEnd = "</parameter>",
                          .close = "</invoke>"}};

const ToolFormat *toolFormatOf(std::string_view chatTemplate) {
  auto has = [&](std::string_view text) {
    return chatTemplate.find(text) != chatTemplate.npos;
  };
  if (!has("tools"))
    return nullptr;
  for (const ToolFormat *each : {&kSeed, &kMinimax})
    if (has(each->open))
      return each;
  if (has("<tool_call>"))
    return has(kFunctionTags.open) ? &kCoder
           : has(kKeyTags.key)     ? &kGlm
                                   : &kHermes;
  if (has("[TOOL_CALLS] [") || has("[TOOL_CALLS]["))
    return &kMistral;
  if (has("[TOOL_CALLS]") && has("[ARGS]"))
    return &kMistralNames;
  if (has(kDeepseekCalls.section))
    return has("```json") ? &kDeepseek : &kDeepseek31;
  if (has(kKimiCalls.section))
    return &kKimi;
  if (has(kPhi.close))
    return &kPhi;
  for (const ToolFormat *each : {&kGranite, &kHunyuan, &kCohere})
    if (has(each->open))
      return each;
  if (has("\"parameters\": ") && has("ipython"))
    return &kLlama;
  return nullptr;
}

std::vector<std::string_view> ToolFormat::tags() const {
  std::vector<std::string_view> all, strings = {open, close};
  auto add = [&](std::initializer_list<std::string_view> more) {
    strings.insert(strings.end(), more);
  };
  if (const NamedCalls *of = named())
    add({of->separator, of->section, of->sectionClose, of->nameEnd});
  if (const ArgumentTags *of = tagged())
    add({of->open, of->key, of->keyEnd, of->value, of->valueEnd, of->close});
  for (std::string_view text : strings)
    while (true) {
      const auto begin = text.find_first_of("<[");
      const auto end = text.find_first_of(">]", std::min(begin, text.size()));
      if (end == text.npos)
        break;
      all.push_back(text.substr(begin, end + 1 - begin));
      text.remove_prefix(end + 1);
    }
  return all;
}

} // namespace tessera::serve
