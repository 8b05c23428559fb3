package io.unitycatalog.penstock;

import io.unitycatalog.client.ApiClient;
import io.unitycatalog.client.ApiClientBuilder;
import io.unitycatalog.client.ApiException;
import io.unitycatalog.client.api.SchemasApi;
import io.unitycatalog.client.api.TablesApi;
import io.unitycatalog.client.auth.TokenProvider;
import io.unitycatalog.client.model.ListTablesResponse;
import io.unitycatalog.client.model.SchemaInfo;
import io.unitycatalog.client.model.TableInfo;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.delta.catalog.DeltaCatalog;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * What io.unitycatalog.spark.UCSingleCatalog does for reading, where Maven does not have it: Delta's catalog loads tables
 * through its own client of Unity Catalog, which it uses if what it delegates to is of a package io.unitycatalog, and
 * lists come from Unity Catalog's client.
 */
public class StandIn extends DeltaCatalog {
  public void initialize(String name, CaseInsensitiveStringMap options) {
    setDelegateCatalog(new Lists(name, options));
    super.initialize(name, options);
  }

  public static class Lists implements TableCatalog, SupportsNamespaces {
    private final String name;
    private final SchemasApi schemas;
    private final TablesApi tables;

    Lists(String name, CaseInsensitiveStringMap options) {
      Map auth = new HashMap();
      auth.put("type", "static");
      auth.put("token", options.get("token"));
      ApiClient client =
          ApiClientBuilder.create().uri(options.get("uri")).tokenProvider(TokenProvider.create(auth)).build();
      this.name = name;
      this.schemas = new SchemasApi(client);
      this.tables = new TablesApi(client);
    }

    public void initialize(String name, CaseInsensitiveStringMap options) {}

    public String name() {
      return name;
    }

    public Identifier[] listTables(String[] namespace) {
      List found = new ArrayList();
      String token = null;
      do {
        ListTablesResponse page = null;
        try {
          page = tables.listTables(name, namespace[0], Integer.valueOf(2), token);
        } catch (ApiException error) {
          throw new RuntimeException(error.getMessage());
        }
        for (int at = 0; at < page.getTables().size(); at++) {
          found.add(Identifier.of(namespace, ((TableInfo) page.getTables().get(at)).getName()));
        }
        token = page.getNextPageToken();
      } while (token != null);
      return (Identifier[]) found.toArray(new Identifier[0]);
    }

    public String[][] listNamespaces() {
      try {
        List found = schemas.listSchemas(name, Integer.valueOf(0), null).getSchemas();
        String[][] names = new String[found.size()][];
        for (int at = 0; at < names.length; at++) {
          names[at] = new String[] {((SchemaInfo) found.get(at)).getName()};
        }
        return names;
      } catch (ApiException error) {
        throw new RuntimeException(error.getMessage());
      }
    }

    public String[][] listNamespaces(String[] namespace) {
      return namespace.length == 0 ? listNamespaces() : new String[0][];
    }

    public Map loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
      try {
        schemas.getSchema(name + "." + namespace[0]);
        return new HashMap();
      } catch (ApiException error) {
        if (error.getCode() == 404) {
          throw new NoSuchNamespaceException(namespace);
        }
        throw new RuntimeException(error.getMessage());
      }
    }

    public Table loadTable(Identifier identifier) {
      throw new UnsupportedOperationException("Delta's catalog loads tables");
    }

    public Table alterTable(Identifier identifier, TableChange[] changes) {
      throw new UnsupportedOperationException();
    }

    public boolean dropTable(Identifier identifier) {
      throw new UnsupportedOperationException();
    }

    public void renameTable(Identifier from, Identifier to) {
      throw new UnsupportedOperationException();
    }

    public void createNamespace(String[] namespace, Map metadata) {
      throw new UnsupportedOperationException();
    }

    public void alterNamespace(String[] namespace, NamespaceChange[] changes) {
      throw new UnsupportedOperationException();
    }

    public boolean dropNamespace(String[] namespace, boolean cascade) {
      throw new UnsupportedOperationException();
    }
  }
}
