"""Who asks for what and when: traces and generators, turned into one stream of requests in order of arrival."""
