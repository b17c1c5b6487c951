#include <gtest/gtest.h>

#include "compiler/report/Page.h"

using namespace tessera::report;

TEST(Page, NamesCannotEndTheData) {
  const std::string hostile = "</script><script>alert(1)</script><!--\xff";
  const std::string text = scriptText({{"name", hostile}});
  EXPECT_EQ(text.find('<'), text.npos);
  const Json back = Json::parse(text);
  EXPECT_EQ(back["name"], "</script><script>alert(1)</script><!--\xef\xbf\xbd");
}

TEST(Page, IsCompleteAndLoadsNothing) {
  const std::string html = page("a <b> & c", {{"kind", "run"}});
  EXPECT_NE(html.find("<title>a &lt;b> &amp; c</title>"), html.npos);
  EXPECT_NE(html.find("{\"kind\":\"run\"}"), html.npos);
  for (const char *loads : {"<link", "src=", "@import", "url("})
    EXPECT_EQ(html.find(loads), html.npos) << loads;
  EXPECT_NE(html.find("default-src 'none'"), html.npos);
}
