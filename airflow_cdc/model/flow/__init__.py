"""What people declare of a flow: settings, routes, columns and policies."""
