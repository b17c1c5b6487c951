// What jinja2 cannot tell (test/oracle/chat_oracle.py asks it for the rest):
// budgets, refusals, and where a template is found.
#include "runtime/infer/chat/ChatTemplate.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

using namespace tessera;
using namespace tessera::chat;

static StatusOr<std::string> render(std::string_view source,
                                    std::string_view variables = "{}",
                                    const RenderOptions &options = {}) {
  StatusOr<ChatTemplate> parsed = ChatTemplate::parse(source, "t");
  if (!parsed.ok())
    return parsed.status();
  return parsed->render(*JsonValue::parse(variables, "v"), options);
}

static std::string errorOf(std::string_view source,
                           std::string_view variables = "{}",
                           const RenderOptions &options = {}) {
  auto result = render(source, variables, options);
  return result.ok() ? "rendered: " + *result : result.message();
}

static std::string repeat(std::string_view text, size_t count) {
  std::string all;
  for (size_t i = 0; i < count; ++i)
    all += text;
  return all;
}

TEST(ChatTemplate, RendersAConversation) {
  auto text = render(
      "{%- for m in messages %}\n"
      "{{ '<|im_start|>' ~ m.role }}\n{{ m['content'] | trim }}<|im_end|>\n"
      "{% endfor %}\n"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
      R"({"messages": [{"role": "user", "content": " Hi "},
                       {"role": "assistant", "content": "Oh"}],
          "add_generation_prompt": true})");
  ASSERT_TRUE(text.ok()) << text.message();
  EXPECT_EQ(*text, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nOh"
                   "<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, SaysWhatIsWrong) {
  EXPECT_EQ(errorOf("a\n{% if x %}"), "t: line 2: endif is missing");
  EXPECT_EQ(errorOf("{{ x | frobnicate }}"),
            "t: line 1: the filter frobnicate is not supported");
  EXPECT_EQ(errorOf("{{ x is strange }}"),
            "t: line 1: the test strange is not supported");
  EXPECT_EQ(errorOf("{% include 'x' %}"),
            "t: line 1: the tag include is not supported");
  EXPECT_EQ(errorOf("{{ messages[0].role }}"), "t: 'messages' is undefined");
  EXPECT_EQ(errorOf("{{ raise_exception('roles must alternate') }}"),
            "t: the template refuses: roles must alternate");
  EXPECT_EQ(errorOf("{{ 1 // 0 }}"), "t: division by zero");
  EXPECT_EQ(errorOf("{{ 9223372036854775807 + 1 }}"),
            "t: a number that is too large");
  EXPECT_EQ(errorOf("{% break %}"), "t: line 1: break outside of a loop");
  EXPECT_EQ(ChatTemplate::parse("\xff", "t").message(),
            "t: the chat template is not UTF-8");
  EXPECT_EQ(ChatTemplate::parse(std::string((1 << 20) + 1, 'a'), "t").message(),
            "t: a chat template of 1048577 bytes is too long; up to 1048576 "
            "are supported");
  EXPECT_EQ(errorOf("{{ x }}", "[]"),
            "t: a chat template needs an object of variables");
}

TEST(ChatTemplate, ListsAreNotChanged) {
  EXPECT_EQ(errorOf("{{ x.append(1) }}", R"({"x": []})"),
            "t: 'list object' has no attribute 'append', which is undefined");
  EXPECT_EQ(errorOf("{{ ''.__class__ }}"), "rendered: ");
}

TEST(ChatTemplate, KeepsToItsBudget) {
  RenderOptions few;
  few.budget = {.steps = 10'000,
                .outputBytes = 1000,
                .workingBytes = 1'000'000,
                .depth = 50};
  std::string loop = "{% for i in range(200) %}{% for j in range(200) %}"
                     "{% endfor %}{% endfor %}";
  EXPECT_EQ(errorOf(loop, "{}", few), "t: more than 10000 steps");
  EXPECT_EQ(
      errorOf("{% for i in range(300) %}{{ 'abcd' }}{% endfor %}", "{}", few),
      "t: more than 1000 bytes of text");
  EXPECT_EQ(errorOf("{% set x = 'a' * 200000 %}", "{}", few),
            "t: more than 10000 steps");
  EXPECT_EQ(errorOf("{% set ns = namespace(x='aaaaaaaaaa') %}"
                    "{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}"
                    "{% endfor %}"),
            "t: more than 268435456 bytes of strings and lists");
  EXPECT_EQ(errorOf("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}"),
            "t: line 1: deeper than 1000 expressions, statements and calls");
  std::string inside =
      repeat("{% if 1 %}", 180) + "{{ f(x) }}" + repeat("{% endif %}", 180);
  EXPECT_EQ(errorOf("{% macro f(x) %}" + inside + "{% endmacro %}{{ f(1) }}"),
            "t: line 1: deeper than 1000 expressions, statements and calls");
  EXPECT_EQ(errorOf("{% for i in range(100001) %}{% endfor %}"),
            "t: a range of more than 100000 numbers");
}

TEST(ChatTemplate, SurvivesDepth) {
  for (const std::string &source :
       {"{{ " + repeat("(", 100'000) + "1" + repeat(")", 100'000) + " }}",
        "{{ " + repeat("[", 100'000) + repeat("]", 100'000) + " }}",
        "{{ 1" + repeat(" + 1", 100'000) + " }}",
        "{{ " + repeat("not ", 100'000) + "1 }}",
        "{{ x" + repeat(".y", 100'000) + " }}",
        "{{ x" + repeat("|string", 100'000) + " }}",
        repeat("{% if x %}", 50'000), repeat("{% for i in x %}", 50'000),
        "{% if x %}" + repeat("{% elif y %}", 50'000) + "{% endif %}"}) {
    auto parsed = ChatTemplate::parse(source, "t");
    ASSERT_FALSE(parsed.ok());
    EXPECT_NE(parsed.message().find("nested too deeply"), std::string::npos)
        << parsed.message();
  }
  std::string deep = repeat("[", 200) + repeat("]", 200);
  EXPECT_TRUE(
      render("{{ x | tojson }}{{ x == x }}{{ x }}", "{\"x\": " + deep + "}")
          .ok());
}

TEST(ChatTemplate, IsFoundInAModelsFolder) {
  std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "chat-template-test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  auto write = [&](const char *name, std::string_view text) {
    std::ofstream(folder / name) << text;
  };
  auto text = [&](std::string_view name = "default") {
    auto loaded = ChatTemplate::load(folder.string(), name);
    if (!loaded.ok())
      return loaded.message().substr(folder.string().size());
    return *loaded->render(*JsonValue::parse("{}", "v"));
  };
  EXPECT_EQ(text(), ": no chat template 'default'; a model for chats has a "
                    "chat_template.jinja or a \"chat_template\" in its "
                    "tokenizer_config.json");
  write("tokenizer_config.json",
        R"({"chat_template": "one {{ bos_token }}{{ eos_token }}",
            "bos_token": "<s>", "eos_token": {"content": "</s>"}})");
  EXPECT_EQ(text(), "one <s></s>");
  write("chat_template.jinja", "two {{ bos_token }}");
  EXPECT_EQ(text(), "two <s>");
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "tool_use", "template": "three"},
                              {"name": "default", "template": "four"}]})");
  EXPECT_EQ(text("tool_use"), "three");
  std::filesystem::remove(folder / "chat_template.jinja");
  EXPECT_EQ(text(), "four");
  write("tokenizer_config.json", "{");
  EXPECT_EQ(text().substr(0, 40), "/tokenizer_config.json: not valid JSON: ");
}

// Values that are shared take little memory and would take much to print.
TEST(ChatTemplate, SharedValuesArePaidForWhereTheyAreWalked) {
  std::string doubled = "{% set ns = namespace(a=[1]) %}{% for i in range(60) "
                        "%}{% set ns.a = [ns.a, ns.a] %}{% endfor %}";
  EXPECT_EQ(*render(doubled + "{{ ns.a | length }}"), "2");
  for (const char *use :
       {"{{ ns.a }}", "{{ ns.a | tojson(indent=9) }}", "{{ ns.a ~ 'x' }}",
        "{{ ns.a | join }}", "{{ ns.a | string | length }}"})
    EXPECT_EQ(errorOf(doubled + use),
              "t: more than 268435456 bytes of strings and lists")
        << use;
  std::string twice = doubled + "{% set x = ns.a %}{% set ns.b = [1] %}" +
                      "{% for i in range(60) %}{% set ns.b = [ns.b, ns.b] %}"
                      "{% endfor %}";
  for (const char *use :
       {"{{ x == ns.b }}", "{{ x in [ns.b] }}", "{{ x is eq ns.b }}",
        "{{ [x].index(ns.b) }}", "{{ x < ns.b }}", "{{ [x, ns.b] | max }}"})
    EXPECT_EQ(errorOf(twice + use), "t: more than 2000000 steps") << use;
}

TEST(ChatTemplate, ValuesAreNotNestedWithoutEnd) {
  for (const char *deeper : {"[ns.a]", "{'x': ns.a}", "(ns.a,)", "ns.a.index"})
    EXPECT_EQ(errorOf("{% set ns = namespace(a=[1]) %}{% for i in range(9999) "
                      "%}{% set ns.a = " +
                      std::string(deeper) + " %}" +
                      (deeper[2] == '.' && deeper[0] == 'n'
                           ? "{% set ns.a = [ns.a] %}"
                           : "") +
                      "{% endfor %}"),
              "t: values nested more than 300 deep")
        << deeper;
  constexpr const char *refused =
      "t: a namespace within another value is not supported";
  EXPECT_EQ(errorOf("{% set n = namespace() %}{% set n.me = n %}"), refused);
  EXPECT_EQ(errorOf("{% set n = namespace() %}{{ [n] }}"), refused);
  EXPECT_EQ(errorOf("{% set n = namespace() %}{% set m = dict(x=n) %}"),
            refused);
  EXPECT_EQ(errorOf("{% set n = namespace() %}{% set m = namespace(x=n) %}"),
            refused);
}

TEST(ChatTemplate, SplitPaysForItsParts) {
  RenderOptions options;
  options.budget.workingBytes = 1 << 20;
  std::string spaces = "{% set t = ' a' * 20000 %}";
  constexpr const char *expected =
      "t: more than 1048576 bytes of strings and lists";
  for (const char *use :
       {"{{ t.split() }}", "{{ t.split(' ') }}", "{{ t.rsplit(' ', 9999) }}",
        "{{ t.replace(' ', '\n').splitlines() }}", "{{ t | list }}"})
    EXPECT_EQ(errorOf(spaces + use, "{}", options), expected) << use;
  EXPECT_EQ(*render(spaces + "{{ t.split(' ', 2) | length }}", "{}", options),
            "3");
}
